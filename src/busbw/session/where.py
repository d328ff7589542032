"""Where the ranks of a run are started."""

from dataclasses import dataclass
from pathlib import Path

from busbw.launch.hosts import Host, parse_hosts, read_hostfile
from busbw.launch.slurm import Step

FORWARDED = (
    "NCCL_",
    "BUSBW_",
    "CUDA_",
    "UCX_",
    "FI_",
    "GLOO_",
    "TORCH_NCCL_",
    "OMP_NUM_THREADS",
    "OMPI_MCA_",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
)
PER_HOST = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")  # not forwarded: they differ between hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """As asked for: a number of ranks, hosts as text or in a file, the network interface, or a step of Slurm."""

    ranks: int | None = None
    hosts: str = ""
    hostfile: Path | None = None
    ifname: str = ""
    step: Step | None = None

    @property
    def local(self) -> bool:
        """Whether nothing but a number of ranks is given."""
        return not (self.hosts or self.hostfile or self.step)

    def named(self) -> tuple[Host, ...]:
        """The hosts with the slots that are given for them."""
        if self.hostfile:
            return read_hostfile(str(self.hostfile))
        return parse_hosts(self.hosts) if self.hosts else ()
