"""busbw: how fast the links between your GPUs are, how fast they should be, and why they are not.

`run` measures a collective, `load` reads any file of busbw, `compare`, `predict` and `check` answer
as the commands of these names do.
"""

from busbw.core.version import __version__

TYPE_CHECKING = False  # without `typing`, whose import takes as long as the rest of a short start
if TYPE_CHECKING:
    from busbw.api.comparison import compare
    from busbw.api.files import load
    from busbw.api.prediction import predict
    from busbw.check.api import check
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
    "check",
    "compare",
    "load",
    "predict",
    "run",
]
_HOMES = {
    "BusbwError": "busbw.core.errors",
    "NoMeasurement": "busbw.core.errors",
    "Result": "busbw.core.result",
    "Sampling": "busbw.core.sweep",
    "SweepSpec": "busbw.core.sweep",
    "UsageError": "busbw.core.errors",
    "compare": "busbw.api.comparison",
    "load": "busbw.api.files",
    "predict": "busbw.api.prediction",
    "run": "busbw.measure.api",
}


def __getattr__(name: str) -> object:
    """Import on first use, so that `import busbw` stays cheap."""
    if name != "check" and name not in _HOMES:
        raise AttributeError(f"module 'busbw' has no attribute '{name}'")
    from importlib import import_module

    if name == "check":  # the package of this name can be called
        return import_module("busbw.check")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
