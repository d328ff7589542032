"""Tells scripts which libraries operations use: Gloo and NCCL, never MPI."""

import torch
import torch.distributed as dist

from busbw_accel.horovod.torch.context import current


def mpi_threads_supported() -> bool:
    """False: operations never use MPI."""
    current()
    return False


def mpi_enabled() -> bool:
    """False: operations use Gloo and NCCL only."""
    return False


mpi_built = ddl_built = ccl_built = mpi_enabled


def gloo_enabled() -> bool:
    """True: torch.distributed has Gloo."""
    return True


gloo_built = gloo_enabled


def nccl_built() -> int:
    """NCCL's version as 10000 x major + 100 x minor + patch; 0 if torch has no NCCL."""
    if not dist.is_nccl_available() or not cuda_built():
        return 0
    major, minor, patch = torch.cuda.nccl.version()
    return int(10000 * major + 100 * minor + patch)


def cuda_built() -> bool:
    return torch.version.cuda is not None


def rocm_built() -> bool:
    return torch.version.hip is not None
