"""Errors of NVSwitches in the kernel log."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped
from busbw.check.gpu.logged import CATALOG, NEVER_S, Event, Judged, Resets, events, of_device, resets
from busbw.check.kernel_log.log import reaches, unread_log, worst_first
from busbw.check.machine import Machine
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.finding import Verdict
from busbw.core.kernel_rule import DAY_S
from busbw.core.sizes import counted
from busbw.core.sxids import ENDED_BY, SwitchEffect, sxid
from busbw.host.dmesg import PastLog, read_past
from busbw.host.gpu_devices import switches_on_pci

FATAL = (SwitchEffect.ALWAYS, SwitchEffect.FATAL)

ROW = CheckRow(
    id="BW006",
    name="gpu-sxid",
    layer=Layer.GPU,
    title="SXid errors of NVSwitches in the kernel log",
    right="no fatal SXid of this boot, unless the NVSwitch was reset since, and no other of the last day that was not corrected",
    why="An SXid is the driver's report of an NVSwitch error. A fatal one kills jobs on the connected GPUs until GPUs and NVSwitches are "
    "reset, or for some until a reboot; it fails until then. One that is not fatal may come from a failing link, and warns for a day. "
    "A corrected one needs nothing.",
    fix="depends on the SXid, and is in the finding: a reset of GPUs and NVSwitches, or a reboot",
    stays="a reset or reboot helps if the fault was transient; if the SXid comes back, replace the board",
    reads=("/dev/kmsg", "/sys/bus/pci/devices/*/{vendor,class}"),
    sources=("Fabric Manager user guide, SXid errors", "open-gpu-kernel-modules, src/common/nvswitch", CATALOG),
)


def look(machine: Machine) -> Iterator[Found]:
    """One finding for each NVSwitch that logged an SXid, the worst first."""
    switches, log = switches_on_pci(machine), read_past(machine)
    found = events(log, switch=True)
    if not switches and not found:
        yield skipped("no NVSwitch on PCI of this machine")
    elif log.reason:
        yield unread_log(log)
    elif not found:
        yield passed("", f"no SXid of {counted(len(switches), 'NVSwitch', 'es')} in the kernel log, which reaches back {reaches(log)}")
    yield from worst_first(_by_switch(found, log))


def _by_switch(found: list[Event], log: PastLog) -> list[Found]:
    seen = resets(log)
    ended = {(event.bus, event.number): event.line.at_s for event in found}
    by_switch: dict[str, list[Judged]] = {}
    for event in found:
        end = ended.get((event.bus, ENDED_BY.get(event.number, 0)), NEVER_S)
        by_switch.setdefault(event.bus, []).append(_judge(event, seen, over=end > event.line.at_s))
    return [of_device(f"NVSwitch {bus}", judged) for bus, judged in by_switch.items()]


def _judge(event: Event, seen: Resets, *, over: bool) -> Judged:
    row = sxid(event.number)
    effect = row.judged(event.word)
    kind = {"": "", "Correctable": "corrected, ", "Non-fatal": "not fatal, ", "Fatal": "fatal, "}[event.word]
    text = f"SXid {event.number} ({kind}{row.meaning}){event.counted}"
    verdict, remark = _verdict(event, effect, seen, over=over)
    return Judged(verdict, text + remark, row.fix(effect, f"{event.bus}.0"), event)


def _verdict(event: Event, effect: SwitchEffect, seen: Resets, *, over: bool) -> tuple[Verdict, str]:
    if effect is SwitchEffect.NOTE:
        return Verdict.PASS, ""
    if over:
        return Verdict.PASS, "; it ended"
    if effect is SwitchEffect.FATAL and seen.after(event.bus, event.line.at_s):
        return Verdict.PASS, "; the NVSwitch was reset since"
    if effect in FATAL:
        return Verdict.FAIL, ""
    return (Verdict.WARN if event.age_s <= DAY_S else Verdict.PASS), ""


CHECK = Check(ROW, look)
