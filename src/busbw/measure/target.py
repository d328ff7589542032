"""Where the ranks of a run are started."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from busbw.core.errors import UsageError

if TYPE_CHECKING:
    from busbw.launch.hosts import LaunchHost
    from busbw.launch.slurm import JobStep

_LIBRARIES = ("NCCL_", "BUSBW_", "CUDA_", "UCX_", "FI_", "GLOO_", "TORCH_NCCL_", "OMPI_MCA_")
FORWARDED = (*_LIBRARIES, "OMP_NUM_THREADS", "PYTHONPATH", "LD_LIBRARY_PATH")
PER_HOST = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")  # not forwarded: they differ between hosts


def forwarded(prefixes: tuple[str, ...] = FORWARDED) -> dict[str, str]:
    """The environment variables with these prefixes, for ranks on other hosts."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(prefixes) and name not in PER_HOST
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTarget:
    """Where to start ranks, as the user asked.

    It has the number of ranks, hosts as text or in a file, a network interface, and a Slurm step.
    """

    ranks: int | None = None
    hosts: str = ""
    hostfile: Path | None = None
    ifname: str = ""
    step: "JobStep | None" = None

    def check(self) -> None:
        """UsageError for less than one rank, and for places that exclude each other."""
        if self.ranks is not None and self.ranks < 1:
            raise UsageError(f"{self.ranks} ranks: there must be at least one", "give 1 or more")
        if bool(self.hosts) + bool(self.hostfile) + bool(self.step) > 1:
            raise UsageError(
                "hosts, a hostfile and a Slurm step exclude each other", "give one of them"
            )

    def named(self) -> "tuple[LaunchHost, ...]":
        """The hosts that the user named, with their slots where given."""
        from busbw.launch.hostfile import given_hosts

        return given_hosts(self.hosts, self.hostfile)
