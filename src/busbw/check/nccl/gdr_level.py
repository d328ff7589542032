"""The distance up to which NCCL uses GPUDirect RDMA."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS, STAYS, Setting, each
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer

VARIABLE, OLD = "NCCL_NET_GDR_LEVEL", "NCCL_IB_GDR_LEVEL"
LEGACY = ("LOC", "PIX", "PXB", "PHB", "SYS")  # by their old numbers; larger numbers are SYS
WORDS = (*LEGACY, "NVL", "NVB", "C2C", "P2C", "PXN")

ROW = CheckRow(
    id="BW168",
    name="nccl-net-gdr-level",
    layer=Layer.NCCL,
    title="maximum distance for GPUDirect RDMA",
    right="not set, or a word such as PXB",
    why="Numbers refer to an old list and are discouraged: 2 is PXB, which is the default on x86 anyway. LOC disables GPUDirect RDMA. "
    "NCCL ignores unknown words, including lowercase ones.",
    fix=f"unset {VARIABLE}",
    stays=STAYS,
    reads=READS,
    sources=("NCCL user guide, NCCL_NET_GDR_LEVEL",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable, and its name before NCCL 2.4."""
    yield from each(machine, (VARIABLE, OLD), _judge)


def _judge(machine: Machine, setting: Setting) -> Found:
    value = setting.value
    if value.isdecimal():
        word = LEGACY[min(int(value), len(LEGACY) - 1)]
        message = f"{setting.text} is a number of the old list, where it means {word}"
        return warned("", message, setting.evidence("a word"), fix=Setting(VARIABLE, word, setting.file).to(word))
    if value == LEGACY[0]:
        return warned("", f"{setting.text} disables GPUDirect RDMA", setting.evidence("not set"), fix=setting.unset)
    if value not in WORDS:
        upper = value.upper()
        message = f"{setting.text} is not an NCCL path type, and has no effect"
        fix = setting.to(upper) if upper in WORDS else setting.unset
        return warned("", message, setting.evidence(", ".join(LEGACY)), fix=fix)
    if setting.name == OLD:
        return warned("", f"{OLD} was renamed in NCCL 2.4", setting.evidence(VARIABLE), fix=setting.unset)
    return passed("", f"{setting.text} uses GPUDirect RDMA up to this distance", setting.evidence())


CHECK = Check(ROW, look)
