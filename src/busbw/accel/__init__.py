"""Exchange of gradients over slow networks: in two dimensions, in narrower formats, or only the
largest elements.

Embeddings that grow.

Needs torch (`busbw[torch]`). Torch is imported by the first name that needs it; `Settings` does
not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from busbw.accel.settings import Settings

if TYPE_CHECKING:
    from busbw.accel.comm_worker import CommWorker, Traffic
    from busbw.accel.ddp import Attached, attach
    from busbw.accel.embedding import DynamicEmbedding, TableSettings
    from busbw.accel.fsdp import Sharded, attach_fully_sharded
    from busbw.accel.offloading.attach import offload
    from busbw.accel.offloading.optimizer import OffloadedAdamW

__all__ = [
    "Attached",
    "CommWorker",
    "DynamicEmbedding",
    "OffloadedAdamW",
    "Settings",
    "Sharded",
    "TableSettings",
    "Traffic",
    "attach",
    "attach_fully_sharded",
    "offload",
]
_MODULES = dict.fromkeys(("Attached", "attach"), "ddp") | dict.fromkeys(
    ("Sharded", "attach_fully_sharded"), "fsdp"
)
_MODULES |= dict.fromkeys(("CommWorker", "Traffic"), "comm_worker") | dict.fromkeys(
    ("DynamicEmbedding", "TableSettings"), "embedding"
)
_MODULES |= {"offload": "offloading.attach", "OffloadedAdamW": "offloading.optimizer"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"busbw.accel.{_MODULES[name]}"), name)
