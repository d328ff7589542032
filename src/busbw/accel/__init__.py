"""Exchange of gradients over slow networks: in two dimensions, in narrower formats, or only the largest elements.

Needs torch (`busbw[torch]`). Torch is imported by the first name that needs it; `Settings` does not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from busbw.accel.settings import Settings

if TYPE_CHECKING:
    from busbw.accel.comm_worker import CommWorker, Traffic
    from busbw.accel.ddp import Attached, attach
    from busbw.accel.fsdp import Sharded, attach_fully_sharded

__all__ = ["Attached", "CommWorker", "Settings", "Sharded", "Traffic", "attach", "attach_fully_sharded"]
_MODULES = dict.fromkeys(("Attached", "attach"), "ddp") | dict.fromkeys(("Sharded", "attach_fully_sharded"), "fsdp")
_MODULES |= dict.fromkeys(("CommWorker", "Traffic"), "comm_worker")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"busbw.accel.{_MODULES[name]}"), name)
