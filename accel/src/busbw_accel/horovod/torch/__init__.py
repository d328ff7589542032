"""`import busbw_accel.horovod.torch as hvd`: Horovod's PyTorch API over torch.distributed.

Names, signatures and meanings are those of Horovod.
"""

from typing import TYPE_CHECKING, Any

from busbw_accel.horovod.torch import elastic, ops
from busbw_accel.horovod.torch.builds import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from busbw_accel.horovod.torch.compression import Compression
from busbw_accel.horovod.torch.context import (
    ProcessSet,
    cross_rank,
    cross_size,
    global_process_set,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    size,
)
from busbw_accel.horovod.torch.errors import HorovodInternalError, HostsUpdatedInterrupt
from busbw_accel.horovod.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from busbw_accel.horovod.torch.ops import (
    add_process_set,
    barrier,
    join,
    poll,
    remove_process_set,
    sparse_allreduce_async,
    synchronize,
)
from busbw_accel.horovod.torch.optimizer import DistributedOptimizer
from busbw_accel.horovod.torch.requests import Adasum, Average, Max, Min, Product, Sum
from busbw_accel.horovod.torch.sync_batch_norm import SyncBatchNorm
from busbw_accel.horovod.torch.world import init, shutdown, start_timeline, stop_timeline

_forms = ops.forms()
globals().update(_forms)

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "Max",
    "Min",
]
__all__ += [
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNorm",
    "add_process_set",
    "allgather_object",
    "barrier",
    "broadcast_object",
]
__all__ += [
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
]
__all__ += [
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
]
__all__ += [
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
]
__all__ += [
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
]
__all__ += ["synchronize"]
__all__ += sorted(_forms)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
