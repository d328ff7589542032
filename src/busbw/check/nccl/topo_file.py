"""A topology file that replaces what NCCL detects."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, unread, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS, STAYS, Setting, each
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

VARIABLE = "NCCL_TOPO_FILE"
MISSING = "no such file or directory"

ROW = CheckRow(
    id="BW194",
    name="nccl-topo-file",
    layer=Layer.NCCL,
    title=f"topology file of {VARIABLE}",
    right="not set, or a file for this machine type",
    why="Virtual machines hide which GPU and NIC share a PCIe switch, so clouds provide a file with the topology. Without it NCCL pairs "
    "GPUs with distant NICs. On bare metal, a file from another machine has the same effect.",
    fix=f"unset {VARIABLE}",
    stays=STAYS,
    reads=(*READS, f"${VARIABLE}"),
    sources=("NCCL user guide, NCCL_TOPO_FILE",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The file."""
    yield from each(machine, (VARIABLE,), _judge)


def _judge(machine: Machine, setting: Setting) -> Found:
    reading = machine.read(setting.value)
    if reading.text is None and not reading.reason.endswith(MISSING):
        return unread("", reading, f"the file of {setting.text}")
    if reading.text is None:
        return warned("", f"{setting.text}: there is no such file", setting.evidence("a file"), fix=setting.unset)
    if "<system" not in reading.text:
        first = Evidence(setting.value, reading.text.partition("\n")[0][:80], "<system version=...")
        return warned("", f"{setting.text} is not an NCCL topology", setting.evidence(), first, fix=setting.unset)
    if not machine.hypervisor:
        message = f"{setting.text} replaces what NCCL detects, and this is not a virtual machine"
        return warned("", message, setting.evidence("not set"), fix=setting.unset)
    return passed("", f"{setting.text} is a topology, and the hypervisor is {machine.hypervisor}", setting.evidence())


CHECK = Check(ROW, look)
