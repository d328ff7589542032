"""Whether a ring may change NICs between hosts."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS, STAYS, Setting, each
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

VARIABLE = "NCCL_CROSS_NIC"

ROW = CheckRow(
    id="BW180",
    name="nccl-cross-nic",
    layer=Layer.NCCL,
    title=f"{VARIABLE} in the environment",
    right="not set, or 2; 0 on a rail-optimized network",
    why="1 lets rings and trees change rails. If each rail has its own switch, that traffic crosses the spine and collides. 1 suits a "
    "network in which all NICs of a host are on one switch.",
    fix=f"unset {VARIABLE}",
    stays=STAYS,
    reads=(*READS, "/sys/class/infiniband"),
    sources=("NCCL user guide, NCCL_CROSS_NIC",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable, and whether there is more than one NIC."""
    yield from each(machine, (VARIABLE,), _judge)


def _judge(machine: Machine, setting: Setting) -> Found:
    if setting.value not in ("0", "1", "2"):
        return warned("", f"{setting.text} is not a value that NCCL knows", setting.evidence("0, 1 or 2"), fix=setting.unset)
    ports = Evidence("/sys/class/infiniband", ", ".join(port.name for port in machine.ports))
    if setting.value != "1":
        return passed("", f"{setting.text} {'is the default' if setting.value == '2' else 'stays on one rail'}", setting.evidence())
    if len(machine.ports) == 1:
        return passed("", f"{setting.text} has no effect with one NIC", setting.evidence(), ports)
    return warned("", f"{setting.text} lets rings cross the rails", setting.evidence("not set, 0 or 2"), ports, fix=setting.unset)


CHECK = Check(ROW, look)
