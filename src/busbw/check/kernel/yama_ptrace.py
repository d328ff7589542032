"""Whether processes of one user may copy from each other's memory."""

from collections.abc import Iterator

from busbw.check.base import Check, broken, judged, skipped, unread
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.interfaces import number

PATH = "/proc/sys/kernel/yama/ptrace_scope"
MOST = 1  # processes may allow it to others with prctl(PR_SET_PTRACER)

ROW = CheckRow(
    id="BW123",
    name="yama-ptrace",
    layer=Layer.KERNEL,
    title="cross-memory attach between processes",
    right="ptrace_scope is 0 or 1, or the kernel has no Yama",
    why="MPI and UCX copy large messages directly between processes. With 2 or 3 they copy twice, through shared memory.",
    fix="sysctl -w kernel.yama.ptrace_scope=1",
    stays="lost at the next reboot; write it to a file in /etc/sysctl.d (3 cannot be changed before a reboot)",
    reads=(PATH,),
    sources=("Linux, Documentation/admin-guide/LSM/Yama.rst", "process_vm_readv(2)"),
)


def look(machine: Machine) -> Iterator[Found]:
    """The setting."""
    reading = machine.read(PATH)
    value = number(reading.text)
    if broken(reading):
        yield unread("", reading, "ptrace_scope")
        return
    if value is None:
        yield skipped(f"no Yama: {reading.reason or 'the value is not a number'}")
        return
    yield judged(
        right=value <= MOST,
        subject="",
        good=f"ptrace_scope is {value}",
        bad=f"ptrace_scope is {value}: processes of one user cannot copy from each other's memory",
        evidence=(Evidence(PATH, str(value), "0 or 1"),),
        fix=ROW.fix,
    )


CHECK = Check(ROW, look)
