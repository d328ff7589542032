"""Errors of GPUs in the kernel log."""

import re
from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, warned
from busbw.check.gpu.each import no_gpus
from busbw.check.gpu.logged import CATALOG, Event, events, reaches, recent, unread_log
from busbw.check.machine import Machine
from busbw.core.checking import CheckRow, Found, Layer
from busbw.core.gpu_events import Blame, xid
from busbw.host.gpu import short_bus
from busbw.host.nvml_health import read_health
from busbw.host.past_kernel_log import read_past

RECOVERY = 154  # the driver names what the GPU needs
_ACTION = re.compile(r" to 0x[0-9a-f]+ \(([^)]+)\)", re.IGNORECASE)

ROW = CheckRow(
    id="BW005",
    name="gpu-xid",
    layer=Layer.GPU,
    title="Xid errors in the kernel log",
    right="none since boot, except those of applications (13, 31, 32, 43, 45, 69)",
    why="An Xid is the driver's report of an error. Some are bugs of a program. Others mean that memory, a link or the GPU itself is "
    "broken, and jobs on it fail until it is reset. An Xid of the last 2 hours fails. An older one may have been repaired, and warns.",
    fix="depends on the Xid, and is in the finding; the table of Xids is in the reference of host counters",
    stays="a reset or reboot helps if the fault was transient; if the Xid comes back, replace the GPU",
    reads=("/dev/kmsg",),
    sources=(CATALOG, "Azure node health checks, azure_gpu_xid"),
)


def look(machine: Machine) -> Iterator[Found]:
    """The latest Xid of each number and GPU."""
    gpus, log = read_health(machine), read_past(machine)
    missing = no_gpus(machine, gpus)
    found = events(log, switch=False)
    if missing and not found:
        yield missing
    elif log.reason:
        yield unread_log(log)
    elif not found:
        yield passed("", f"no Xid in the kernel log, which reaches back {reaches(log)}")
    labels = {short_bus(gpu.bus_id): gpu.label for gpu in gpus.gpus if gpu.bus_id}
    for event in found:
        yield _judge(event, labels.get(event.bus, event.bus))


def _judge(event: Event, subject: str) -> Found:
    row = xid(event.number)
    message = f"Xid {event.number} ({row.meaning}){event.repeated}, {event.ago}"
    evidence, remedy, blame = event.evidence, row.fix, row.blame
    if event.number == RECOVERY and (action := _ACTION.search(event.line.text)):
        message, remedy = f"{message}: {action[1]}", f"{action[1].lower()}: drain the host first"
        blame = Blame.APPLICATION if action[1] == "None" else blame  # a reset has already been done
    if blame is Blame.APPLICATION:
        return passed(subject, message, evidence)
    broken = blame is Blame.BROKEN and recent(event)
    return (failed if broken else warned)(subject, message, evidence, fix=remedy)


CHECK = Check(ROW, look)
