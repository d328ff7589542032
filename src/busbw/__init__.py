"""busbw: how fast the links between your GPUs are, how fast they should be, and why they are not.

`busbw.run("all_reduce")` measures a collective and returns a Result.
"""

from busbw.core.version import __version__

TYPE_CHECKING = False  # without `typing`, whose import takes as long as the rest of a short start
if TYPE_CHECKING:
    from busbw.core.errors import BusbwError, NoMeasurement, UsageError
    from busbw.core.result import Result
    from busbw.core.sweep import Sampling, SweepSpec
    from busbw.measure.api import run

__all__ = [
    "BusbwError",
    "NoMeasurement",
    "Result",
    "Sampling",
    "SweepSpec",
    "UsageError",
    "__version__",
    "run",
]
_HOMES = {
    "BusbwError": "busbw.core.errors",
    "NoMeasurement": "busbw.core.errors",
    "Result": "busbw.core.result",
    "Sampling": "busbw.core.sweep",
    "SweepSpec": "busbw.core.sweep",
    "UsageError": "busbw.core.errors",
    "run": "busbw.measure.api",
}


def __getattr__(name: str) -> object:
    """Import on first use, so that `import busbw` stays cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module 'busbw' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
