"""Which reference curves are of systems like a described one."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache

from busbw.model.fabric import rails_of
from busbw.model.hardware import Generation, bridged_gpus, by_name
from busbw.model.nccl.constants import RING, TREE
from busbw.model.nccl.nvls_types import reduces
from busbw.model.reference.curves import ReferenceCurve
from busbw.model.systems import GBIT

FIRST_MULTICAST_SM = 90
RDMA = ("", "ib", "roce")
BOARD = 8  # GPUs of the largest boards with curves of their own
SAME_RATE = 0.1  # as a part of the NICs' rate


class Kinship(IntEnum):
    """How much two GPUs have in common, the most first."""

    SAME = 0
    TWIN = 1  # architecture and links, as H100 and H200
    FAMILY = 2  # architecture
    OTHER = 3


@dataclass(frozen=True, slots=True)
class ReferenceJob:
    """What ran, or is to run: a collective on `hosts` hosts with `per_host` ranks each."""

    gpu: str  # a word of the table of GPUs; empty for a GPU that is not in it
    collective: str
    hosts: int
    per_host: int
    nics: float = 0.0  # bytes per second of a host's NICs
    rails: int = 0  # of a host
    fabric: str = ""
    dtype: str = "float"
    op: str = "sum"
    nvls: bool = True  # whether NCCL may let NVSwitches reduce

    @property
    def ranks(self) -> int:
        return self.hosts * self.per_host


@cache
def kinship(gpu: str, other: str) -> Kinship:
    """How alike two GPUs are, by their words."""
    if gpu == other:
        return Kinship.SAME
    row, other_row = by_name(gpu), by_name(other)
    if row is None or other_row is None or row.sm // 10 != other_row.sm // 10:
        return Kinship.OTHER
    return Kinship.TWIN if _links(row) == _links(other_row) else Kinship.FAMILY


def _links(row: Generation) -> tuple[int, float]:
    return row.links, row.planned


def nearest(curves: Sequence[ReferenceCurve], gpu: str) -> tuple[list[ReferenceCurve], Kinship]:
    """The curves of the GPU that is most like this one."""
    closest = min((kinship(gpu, curve.gpu) for curve in curves), default=Kinship.OTHER)
    return [curve for curve in curves if kinship(gpu, curve.gpu) == closest], closest


def is_reduced_alike(curve: ReferenceCurve, job: ReferenceJob, algorithm: str = "") -> bool:
    """Whether a curve's data are reduced like the job's: by the switch (NVLink SHARP) or by
    GPUs. A type that is not stated is one that switches reduce, as nccl-tests' default is. A run on
    several hosts whose source says that it was of the job's `algorithm` is alike.
    """
    if not curve.dtype and not reduces(job.collective, job.dtype, job.op):
        return False
    if algorithm and curve.hosts > 1 and curve.algorithm == algorithm:
        return True
    in_switch = job.nvls and _may_use_switch(job.gpu, job.collective, job.dtype, job.op)
    return _used_switch(curve) == in_switch


def _used_switch(curve: ReferenceCurve) -> bool:
    if curve.algorithm in (RING, TREE):
        return False
    return _may_use_switch(curve.gpu, curve.collective, curve.dtype or "float", "sum")


@cache
def _may_use_switch(gpu: str, collective: str, dtype: str, op: str) -> bool:
    """Whether NVSwitches can reduce this type of these GPUs. On measured boards reduce_scatter and
    all_gather have the rates of rings.
    """
    row = by_name(gpu)
    multicast = row is not None and row.sm >= FIRST_MULTICAST_SM and gpu not in bridged_gpus()
    return multicast and collective == "all_reduce" and reduces(collective, dtype, op)


def of_shape(curves: Sequence[ReferenceCurve], job: ReferenceJob) -> list[ReferenceCurve]:
    """The curves of as many hosts and ranks, over such NICs and, where known, the same fabric."""
    return [curve for curve in curves if _is_of_shape(curve, job)]


def _is_of_shape(curve: ReferenceCurve, job: ReferenceJob) -> bool:
    if (curve.hosts, curve.per_host) != (job.hosts, job.per_host):
        return False
    return job.hosts == 1 or _has_such_nics(curve, job)


def is_of_such_hosts(curve: ReferenceCurve, job: ReferenceJob) -> bool:
    """Whether a curve is of hosts like a job's, one or several of them, whatever their number.
    Racks are alike whatever part of one takes part, and whatever its NICs.
    """
    if (curve.hosts > 1) != (job.hosts > 1):
        return False
    if job.per_host > BOARD:
        return curve.per_host > BOARD if job.hosts > 1 else curve.per_host == job.per_host
    return curve.per_host == job.per_host and (job.hosts == 1 or _has_such_nics(curve, job))


def _has_such_nics(curve: ReferenceCurve, job: ReferenceJob) -> bool:
    if fabric_kind(curve.fabric) != fabric_kind(job.fabric):
        return False
    if rails(curve.nics, curve.per_host) != job.rails:
        return False  # NCCL chooses another algorithm where GPUs share NICs
    return abs(nics_rate(curve.nics) - job.nics) <= SAME_RATE * job.nics


def fabric_kind(fabric: str) -> str:
    """Fabrics with the same latencies are of one kind; RDMA where none is named."""
    return "" if fabric in RDMA else fabric


@cache
def nics_rate(text: str) -> float:
    """The bytes per second of NICs such as `8x400G`; 0 for none."""
    count, gbit = _nics(text)
    return count * gbit * GBIT


@cache
def rails(text: str, per_host: int) -> int:
    """How many rails such NICs are for so many GPUs."""
    return rails_of(_nics(text)[0], per_host)


def _nics(text: str) -> tuple[int, float]:
    if not text:
        return 0, 0.0
    count, _, gbit = text.rpartition("x")
    return int(count or 1), float(gbit.removesuffix("G"))


def over_nvlink(gpu: str) -> bool:
    """Whether GPUs of this word have NVLink."""
    return by_name(gpu) is not None
