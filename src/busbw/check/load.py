"""GPUs under load: copies from and to pinned memory, with NVML samples.

The module `load_run` measures in a process of its own, and checks judge the result.
"""

from collections.abc import Callable, Iterator
from functools import wraps

import msgspec

from busbw.check import measuring
from busbw.check.base import Check, check, skipped, unknown
from busbw.check.machine import WITH_CPU, Machine
from busbw.check.measuring import measured
from busbw.check.types import Finding
from busbw.core.finding import CheckRow
from busbw.host.gpu_samples import Sample
from busbw.host.source import Live, Reading, Source, Unavailable

CALL = "gpu_load"
COMMAND = "busbw check --load 10"
START_S = 60.0  # at most, for CUDA to start on all GPUs
MOST_GPUS = 16


class Copies(msgspec.Struct, frozen=True):
    """Copies in one direction, `to the GPU` or `from the GPU`, and samples of the GPU meanwhile."""

    direction: str
    bytes_per_s: float
    samples: tuple[Sample, ...] = ()


class GpuLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU under load. `bus_id` is as in sysfs.

    Maxima are those of this GPU in this machine, None if NVML reports none.
    """

    index: int
    bus_id: str
    name: str
    gen_max: int | None = None
    width_max: int | None = None
    sm_max_mhz: int | None = None
    copies: tuple[Copies, ...] = ()

    @property
    def label(self) -> str:
        """`GPU 2`."""
        return f"GPU {self.index}"

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples of all copies."""
        return tuple(sample for copies in self.copies for sample in copies.samples)


class Load(msgspec.Struct, frozen=True):
    """The GPUs that this process may use; `reason` says why there are none."""

    gpus: tuple[GpuLoad, ...] = ()
    reason: str = ""


class Loaded(Live):
    """This machine, after a load of `seconds` on each GPU, then on each RDMA port next to a GPU.

    The load runs in its own process, so that checks do not see its memory, and a hung GPU can be
    given up.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def call(self, name: str, live: Callable[[], str]) -> Reading:
        """The result of a load or of any other call."""
        if name == CALL:
            return Reading(msgspec.json.encode(_run(self._seconds)))
        if name == measuring.CALL:
            return Reading(msgspec.json.encode(measuring.run(self._seconds)))
        return super().call(name, live)


def begin(source: Source) -> None:
    """Make the loads. This comes before all other reads."""
    source.call(CALL, _not_asked)
    source.call(measuring.CALL, _not_asked)


def longest_s(seconds: float) -> float:
    """The longest time in seconds for copies that last `seconds` in each direction."""
    return START_S + MOST_GPUS * 2 * seconds


def _run(seconds: float) -> Load:
    answer = measured("busbw.check.load_run", seconds, longest_s(seconds), Load, what="the copies")
    return Load(reason=answer) if isinstance(answer, str) else answer


def under_load(
    row: CheckRow, *, over_pcie: bool
) -> Callable[[Callable[[GpuLoad], Iterator[Finding]]], Check]:
    """Makes a function that judges one GPU under load the check of `row`; see `each_loaded_gpu`."""

    def register(judge: Callable[[GpuLoad], Iterator[Finding]]) -> Check:
        @check(row)
        @wraps(judge)
        def judge_all(machine: Machine) -> Iterator[Finding]:
            return each_loaded_gpu(machine, judge, over_pcie=over_pcie)

        return judge_all

    return register


def each_loaded_gpu(
    machine: Machine, judge: Callable[[GpuLoad], Iterator[Finding]], *, over_pcie: bool
) -> Iterator[Finding]:
    """The findings on each GPU; skip without a load, unknown if the load failed.

    With `over_pcie` a GPU with another link to its CPU is skipped.
    """
    reading = machine.call(CALL, _not_asked)
    load = None if reading.data is None else msgspec.json.decode(reading.data, type=Load)
    if load is None:
        yield skipped(f"judged only under load: {COMMAND}")
    elif not load.gpus:
        yield unknown(
            "",
            f"no GPU could be put under load: {load.reason or 'there is none'}",
            fix="nvidia-smi; pip install 'busbw[cuda13]'",
        )
    for gpu in load.gpus if load else ():
        if over_pcie and gpu.name.startswith(WITH_CPU):
            yield skipped(
                f"{gpu.name} is connected to its CPU by NVLink-C2C, not by PCIe", gpu.label
            )
        else:
            yield from judge(gpu)


def _not_asked() -> str:
    raise Unavailable("no load was asked for")
