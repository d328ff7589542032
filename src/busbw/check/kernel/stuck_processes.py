"""Processes that hang in the kernel."""

import json
from collections.abc import Iterator

from busbw.check.base import Check, passed, unknown, unread, warned
from busbw.check.machine import Machine
from busbw.core.checking import CheckRow, Evidence, Found, Layer
from busbw.core.shell_words import filled
from busbw.host.stuck import stuck_processes

NAMED = 5
KTHREADD = "/proc/2/comm"  # the parent of kernel threads, only in the host's namespace

ROW = CheckRow(
    id="BW124",
    name="stuck-processes",
    layer=Layer.KERNEL,
    title="processes stuck in the kernel",
    right="no process stays in state D",
    why="Such a process waits for a driver or file system that does not respond. It cannot be killed, and may hold a GPU.",
    fix="read /proc/{pid}/stack and dmesg to see which driver or mount it waits for; if it does not end, reboot",
    stays="a reboot ends it; the cause may come back",
    reads=("/proc/*/stat, for a second", KTHREADD),
    sources=("proc(5): state D",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Processes that were in state D in every sample."""
    reading = machine.call("stuck processes", stuck_processes)
    if reading.text is None:
        yield unread("", reading, "the states of processes")
        return
    found = json.loads(reading.text)
    if not found:
        yield _none(machine)
        return
    names = [f"{name} ({pid})" for pid, name in found]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    evidence = (Evidence(f"/proc/{pid}/stat", "state D", "R or S") for pid, _ in found[:NAMED])
    yield warned("", f"in state D for a second: {', '.join(names[:NAMED])}{more}", *evidence, fix=filled(ROW.fix, pid=found[0][0]))


def _none(machine: Machine) -> Found:
    if machine.container and machine.text(KTHREADD) != "kthreadd":
        fix = "run busbw check on the host, or in a container with the host's processes (--pid=host, hostPID)"
        return unknown("", "this container shows only its own processes", Evidence(KTHREADD, "not kthreadd", "kthreadd"), fix=fix)
    return passed("", "no process hangs in the kernel", Evidence("/proc/*/stat", "no state D"))


CHECK = Check(ROW, look)
