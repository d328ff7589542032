"""An import shim: scripts that import `horovod.common.util` get this module."""

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from busbw_accel.horovod.torch import builds

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def split_list(items: Sequence[Item], parts: int) -> list[Sequence[Item]]:
    """Split into `parts` runs whose lengths differ by one at most, the longer ones first."""
    base, extra = divmod(len(items), parts)
    ends = [number * base + min(number, extra) for number in range(parts + 1)]
    return [items[begin:end] for begin, end in itertools.pairwise(ends)]


def _with_verbose(ask: Callable[[], Answer]) -> Callable[..., Answer]:
    def built(verbose: bool = False) -> Answer:
        return ask()

    built.__doc__ = ask.__doc__
    return built


mpi_built = _with_verbose(builds.mpi_built)
gloo_built = _with_verbose(builds.gloo_built)
nccl_built = _with_verbose(builds.nccl_built)
ddl_built = _with_verbose(builds.ddl_built)
ccl_built = _with_verbose(builds.ccl_built)


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework is "torch", the only one that busbw has."""
    return ext_base_name == "torch"


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether a framework has a GPU."""
    return extension_available(ext_base_name) and torch.cuda.is_available()


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Raises ImportError for a framework other than horovod.torch."""
    if ext_name != "horovod.torch":
        raise ImportError(
            f"busbw has no {ext_name}: of Horovod it has the PyTorch module, horovod.torch"
        )
