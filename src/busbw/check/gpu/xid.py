"""Errors of GPUs in the kernel log."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped
from busbw.check.gpu import nvlink_registers
from busbw.check.gpu.logged import CATALOG, NO_ACTION, NVLINK, Event, Judged, Resets, events, of_device, recovery, resets
from busbw.check.kernel_log.log import reaches, unread_log, worst_first
from busbw.check.machine import Machine
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.finding import Verdict
from busbw.core.kernel_rule import DAY_S
from busbw.core.xids import Effect, xid
from busbw.host.dmesg import read_past
from busbw.host.gpu import short_bus
from busbw.host.gpu_devices import gpus_on_pci
from busbw.host.nvml_health import read_health

FAILS = (Effect.REBOOT, Effect.RESET, Effect.REPAIR)

ROW = CheckRow(
    id="BW005",
    name="gpu-xid",
    layer=Layer.GPU,
    title="Xid errors in the kernel log",
    right="no Xid of this boot that asks for a reset, a restart of the host or a repair, unless the GPU was reset since",
    why="An Xid is the driver's report of an error. Some are bugs in a program (13, 31, 43 ...) and pass. Some ask for a restart of the "
    "application; those warn for a day, as the GPU may have caused them. Others mean that memory, a link or the GPU itself is broken, and "
    "jobs on it fail until it is reset: they fail until a reset of that GPU is in the log, or until the next boot, however old they are.",
    fix="depends on the Xid, and is in the finding; the table of Xids is in the reference of host counters",
    stays="a reset or reboot helps if the fault was transient; if the Xid comes back, replace the GPU",
    reads=("/dev/kmsg", "/sys/bus/pci/devices/*/{vendor,class}"),
    sources=(CATALOG, "NVSentinel, syslog health monitor", "Azure node health checks, azure_gpu_xid"),
)


def look(machine: Machine) -> Iterator[Found]:
    """One finding for each GPU that logged an Xid, the worst first."""
    log = read_past(machine)
    found = events(log, switch=False)
    if not found and not gpus_on_pci(machine) and not read_health(machine).gpus:
        yield skipped("no NVIDIA GPU")
    elif log.reason:
        yield unread_log(log)
    elif not found:
        yield passed("", f"no Xid in the kernel log, which reaches back {reaches(log)}")
    gpus = {short_bus(gpu.bus_id): gpu for gpu in read_health(machine).gpus if gpu.bus_id}
    labels = {bus: gpu.label for bus, gpu in gpus.items()}
    hopper = {bus for bus, gpu in gpus.items() if gpu.sm == nvlink_registers.HOPPER}
    seen = resets(log)
    by_gpu: dict[str, list[Judged]] = {}
    for event in found:
        by_gpu.setdefault(event.bus, []).append(_judge(event, seen, hopper=event.bus in hopper))
    yield from worst_first([of_device(labels.get(bus, bus), judged) for bus, judged in by_gpu.items()])


def _judge(event: Event, seen: Resets, *, hopper: bool) -> Judged:
    row = xid(event.number)
    text = f"Xid {event.number} ({row.meaning}){event.counted}"
    verdict, remark = _verdict(event, _effect(event, row.effect, hopper=hopper), seen)
    fix = row.fix(f"{event.bus}.0")
    if row.effect is Effect.RECOVERY and (action := recovery(event.line.text)):
        remark = f": {action}{remark}"
        fix = f"drain the host first; {action.lower()}"
    return Judged(verdict, text + remark, fix, event)


def _effect(event: Event, effect: Effect, *, hopper: bool) -> Effect:
    """The row's effect, or what the line says."""
    if effect is Effect.LINK:
        return Effect.RESET if event.word == "Fatal" else Effect.RESTART
    if event.number == NVLINK and hopper:
        return {nvlink_registers.HARMLESS: Effect.NOTE, nvlink_registers.SECONDARY: Effect.WATCH}.get(event.word, effect)
    return effect


def _verdict(event: Event, effect: Effect, seen: Resets) -> tuple[Verdict, str]:
    """The verdict on an Xid, and a remark that explains it."""
    if effect is Effect.RECOVERY:
        return _requested(event, seen)
    if effect in FAILS:
        return _until_reset(event, effect, seen)
    if effect is Effect.APPLICATION:
        return Verdict.PASS, ": an error of the application"
    if effect is Effect.NOTE:
        return Verdict.PASS, ": needs no action"
    if effect is Effect.WATCH:
        reset = seen.after(event.bus, event.line.at_s)
        return (Verdict.PASS, "; the GPU was reset since") if reset else (Verdict.WARN, "")
    return (Verdict.WARN if event.age_s <= DAY_S else Verdict.PASS), ""


def _requested(event: Event, seen: Resets) -> tuple[Verdict, str]:
    """Of Xid 154: what the driver asks for now."""
    if recovery(event.line.text) == NO_ACTION:
        return Verdict.PASS, ""
    if seen.after(event.bus, event.line.at_s):
        return Verdict.PASS, "; the GPU was reset since"
    return Verdict.FAIL, ""


def _until_reset(event: Event, effect: Effect, seen: Resets) -> tuple[Verdict, str]:
    """A GPU that came back after it was off the bus was reset, but only the driver can say that it is in order."""
    at_s = event.line.at_s
    cleared = seen.after(event.bus, at_s) if effect is Effect.RESET else seen.cleared_after(event.bus, at_s)
    if cleared:
        return Verdict.PASS, "; the GPU was reset since"
    if effect is Effect.RESET and seen.reloaded_after(at_s):
        return Verdict.WARN, "; the driver was loaded again since, which does not reset all of the GPU"
    return Verdict.FAIL, ""


CHECK = Check(ROW, look)
