"""Training over slow networks and with little GPU memory.

Gradients are exchanged in two dimensions, in narrower formats, or only their largest elements; or
parameters, after many steps.
Embedding tables grow with their ids. The states of AdamW live in host memory.

Needs torch (`busbw-accel[torch]`). `Settings` can be imported without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from busbw_accel.settings import Settings

if TYPE_CHECKING:
    from busbw_accel.comm_worker import CommWorker
    from busbw_accel.ddp import Attached, attach
    from busbw_accel.embedding import DynamicEmbedding, TableSettings
    from busbw_accel.fsdp import Sharded, attach_fully_sharded
    from busbw_accel.local_steps import LocalSteps
    from busbw_accel.offloading.attach import offload
    from busbw_accel.offloading.optimizer import OffloadedAdamW
    from busbw_accel.traffic import Traffic

__all__ = [
    "Attached",
    "CommWorker",
    "DynamicEmbedding",
    "LocalSteps",
    "OffloadedAdamW",
    "Settings",
    "Sharded",
    "TableSettings",
    "Traffic",
    "attach",
    "attach_fully_sharded",
    "offload",
]
_MODULES = {
    "Attached": "ddp",
    "CommWorker": "comm_worker",
    "DynamicEmbedding": "embedding",
    "LocalSteps": "local_steps",
    "OffloadedAdamW": "offloading.optimizer",
    "Sharded": "fsdp",
    "TableSettings": "embedding",
    "Traffic": "traffic",
    "attach": "ddp",
    "attach_fully_sharded": "fsdp",
    "offload": "offloading.attach",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"busbw_accel.{_MODULES[name]}"), name)
