"""Reads of this machine that never returned."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, skipped, unknown
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.limited import given_up

ROW = CheckRow(
    id="BW280",
    name="reads-answer",
    layer=Layer.KERNEL,
    title="files and libraries that do not answer",
    right="every file, directory and library call answers in time",
    why="A read that never returns shows a driver that hangs, a file system without its server, or a device that stopped. Jobs that "
    "read the same hang as well, and cannot be killed.",
    fix="drain the node; dmesg -T | tail -50 names the driver or mount; if it does not recover, reboot",
    stays="a reboot ends the hang; the cause may come back",
    reads=("the readings of all other checks, 5 s for a file and 30 s for a call",),
    sources=("proc(5): state D",),
)


def look(machine: Machine) -> Iterator[Found]:
    """One failure for each read that did not return; unknown if the time for all reads was up."""
    found = given_up(machine)
    if found is None:
        yield skipped("this machine was read without a limit of time")
        return
    for reason in found.silent:
        subject, _, what = reason.partition(": ")
        yield failed(subject, f"{subject} {what}", Evidence(subject, what, "an answer"), fix=ROW.fix)
    if found.over:
        yield unknown("", found.over, fix="busbw check --limit 300")
    elif not found.silent:
        yield passed("", "everything that was read answered")


CHECK = Check(ROW, look)
