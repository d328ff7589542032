"""Errors of NVSwitches in the kernel log."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, skipped, warned
from busbw.check.gpu.logged import CATALOG, Event, events, reaches, recent, unread_log
from busbw.check.machine import Machine
from busbw.core.checking import CheckRow, Found, Layer
from busbw.core.gpu_events import xid
from busbw.core.sizes import counted
from busbw.host.gpu_devices import switches_on_pci
from busbw.host.past_kernel_log import read_past

FATAL = ", Fatal,"

ROW = CheckRow(
    id="BW006",
    name="gpu-sxid",
    layer=Layer.GPU,
    title="SXid errors of NVSwitches in the kernel log",
    right="none since boot",
    why="An SXid is the driver's report of an NVSwitch error. A fatal one kills jobs on the connected GPUs until a reboot. A nonfatal "
    "one may come from a failing link.",
    fix="journalctl -u nvidia-fabricmanager; drain the host, stop all users of the GPUs, and reboot it",
    stays="a reboot helps if the fault was transient; if the SXid comes back, replace the board",
    reads=("/dev/kmsg", "/sys/bus/pci/devices/*/{vendor,class}"),
    sources=("Fabric Manager user guide, SXid errors", CATALOG),
)


def look(machine: Machine) -> Iterator[Found]:
    """The latest SXid of each number and NVSwitch."""
    switches, log = switches_on_pci(machine), read_past(machine)
    found = events(log, switch=True)
    if not switches and not found:
        yield skipped("no NVSwitch on PCI of this machine")
    elif log.reason:
        yield unread_log(log)
    elif not found:
        yield passed("", f"no SXid of {counted(len(switches), 'NVSwitch', 'es')} in the kernel log, which reaches back {reaches(log)}")
    for event in found:
        yield _judge(event)


def _judge(event: Event) -> Found:
    fatal = FATAL in event.line.text
    message = (
        f"SXid {event.number} ({'fatal' if fatal else 'not fatal'} {xid(event.number, switch=True).meaning}){event.repeated}, {event.ago}"
    )
    return (failed if fatal and recent(event) else warned)(f"NVSwitch {event.bus}", message, event.evidence, fix=ROW.fix)


CHECK = Check(ROW, look)
