"""RDMA disabled."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS, STAYS, Setting, each, known
from busbw.check.nic.links import driver, own
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import parse_int

VARIABLE = "NCCL_IB_DISABLE"
EFA = "efa"  # NCCL uses it through a plugin, which the variable does not affect

ROW = CheckRow(
    id="BW167",
    name="nccl-ib-disable",
    layer=Layer.NCCL,
    title=f"{VARIABLE} on a host with RDMA ports",
    right="not set, or 0, which is the default",
    why="NCCL falls back to TCP sockets. On two hosts with 8 GPUs each, a published all_reduce of 8 GiB went from 480 to 9 GB/s.",
    fix=f"unset {VARIABLE}",
    stays=STAYS,
    reads=(*READS, "/sys/class/infiniband/*/ports/*/state"),
    sources=("NCCL user guide, NCCL_IB_DISABLE",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable, and whether there is anything to disable."""
    yield from each(machine, (VARIABLE,), _judge)


def _judge(machine: Machine, setting: Setting) -> Found:
    if parse_int(setting.value) == 0:
        return passed("", f"{setting.text} is the default and has no effect", setting.evidence())
    active = [port.name for port in own(machine) if port.active and driver(machine, port) != EFA]
    if not active and known(machine):
        return passed("", f"{setting.text}, and NCCL itself uses no active RDMA port", setting.evidence())
    evidence = [setting.evidence("not set")]
    if active:
        evidence.append(Evidence("/sys/class/infiniband/*/ports/*/state", f"active: {', '.join(active)}"))
    return warned("", f"{setting.text}: NCCL uses sockets instead of RDMA", *evidence, fix=setting.unset)


CHECK = Check(ROW, look)
