"""Which libraries operations use: Gloo and NCCL, never MPI."""

import torch
import torch.distributed as dist

from busbw.horovod.torch.context import current


def mpi_threads_supported() -> bool:
    """False: operations never use MPI."""
    current()
    return False


def mpi_enabled() -> bool:
    """False: operations never use MPI."""
    return False


def mpi_built() -> bool:
    """False: operations never use MPI."""
    return False


def gloo_enabled() -> bool:
    """Yes."""
    return True


def gloo_built() -> bool:
    """Yes."""
    return True


def nccl_built() -> int:
    """NCCL's version as 10000 x major + 100 x minor + patch, where torch has NCCL; else 0."""
    if not dist.is_nccl_available() or not cuda_built():
        return 0
    major, minor, patch = torch.cuda.nccl.version()
    return int(10000 * major + 100 * minor + patch)


def ddl_built() -> bool:
    """No."""
    return False


def ccl_built() -> bool:
    """No."""
    return False


def cuda_built() -> bool:
    """Whether torch has CUDA."""
    return torch.version.cuda is not None


def rocm_built() -> bool:
    """Whether torch has ROCm."""
    return torch.version.hip is not None
