"""GPUs under load: copies from and to pinned memory, with NVML samples.

The module `gpu_copies_run` makes the copies in a process of its own.
"""

import msgspec

from busbw.check.load.measurement import run_measurement
from busbw.host.gpu_samples import GpuSample

CALL = "gpu_load"
START_S = 60.0  # at most, for CUDA to start on all GPUs
MAX_GPUS = 16


class Copies(msgspec.Struct, frozen=True):
    """Copies in one direction, `to the GPU` or `from the GPU`, and samples of the GPU meanwhile."""

    direction: str
    bytes_per_s: float
    samples: tuple[GpuSample, ...] = ()


class GpuLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU under load."""

    index: int
    bus_id: str  # as in sysfs
    name: str
    gen_max: int | None = None  # maxima are of this GPU in this machine; None if NVML reports none
    width_max: int | None = None
    sm_max_mhz: int | None = None
    copies: tuple[Copies, ...] = ()

    @property
    def label(self) -> str:
        """`GPU 2`."""
        return f"GPU {self.index}"

    @property
    def samples(self) -> tuple[GpuSample, ...]:
        return tuple(sample for copies in self.copies for sample in copies.samples)


class UsableGpus(msgspec.Struct, frozen=True):
    """The GPUs that this process may use; `reason` says why there are none."""

    gpus: tuple[GpuLoad, ...] = ()
    reason: str = ""


def longest_s(seconds: float) -> float:
    """The most seconds that `run(seconds)` may take: twice those of the copies, which warm up."""
    return START_S + MAX_GPUS * 2 * seconds


def run(seconds: float) -> UsableGpus:
    """Copies on each GPU of this machine for `seconds`, half of them in each direction."""
    answer = run_measurement(
        "busbw.check.load.gpu_copies_run",
        seconds,
        longest_s(seconds),
        UsableGpus,
        what="the copies",
    )
    return UsableGpus(reason=answer) if isinstance(answer, str) else answer
