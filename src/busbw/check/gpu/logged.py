"""Errors of GPUs and NVSwitches in the kernel log so far: how many, the latest of each kind, and when a GPU was reset."""

import re
from dataclasses import dataclass, field

from busbw.check.gpu import nvlink_registers
from busbw.check.kernel_log.log import evidence, repeated
from busbw.check.overall import SEVERITY
from busbw.check.types import Found
from busbw.core.finding import Verdict
from busbw.core.sxids import WORDS
from busbw.core.units import span
from busbw.host.dmesg import Line, PastLog
from busbw.host.gpu import short_bus
from busbw.host.kernel_log import LoggedXid, logged_xids

CATALOG = "NVIDIA's Xid catalog"
# After `pid=1, name=python` comes the unit that failed, then its severity: "NETIR_LINK_EVT Fatal XC0 i0 Link 08".
_LINK_WORD = re.compile(r", (?:pid=[^,]*, name=.*?, )?[\w/]+ +(Fatal|Nonfatal|Non-fatal)\b", re.ASCII)
_RECOVERY = re.compile(r" to 0x[0-9a-f]+ \(([^)]+)\)", re.IGNORECASE)
_PCI_RESET = re.compile(r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]): reset done", re.ASCII)
_RELOADED = re.compile(r"nvidia-nvlink: (?:Nvlink Core is being initialized|Unregistered Nvlink Core)")
RECOVERY, NVLINK = 154, 74
NAMED = 4  # errors of a device in a message; the rest is counted
NO_ACTION = "None"
NEVER_S = float("-inf")


@dataclass(frozen=True, slots=True)
class Event:
    """All errors of one number, severity and device; `line` is the latest. `word` is its severity, '' if the line has none."""

    bus: str
    number: int
    word: str
    times: int
    line: Line
    age_s: float

    @property
    def counted(self) -> str:
        """` x 3, 2 h ago`."""
        return f"{repeated(self.times)}, {span(self.age_s)} ago"


def events(log: PastLog, *, switch: bool) -> list[Event]:
    """The Xids of GPUs, or the SXids of NVSwitches."""
    found: dict[tuple[str, int, str], Event] = {}
    for line in log.lines:
        for one in logged_xids(line.text):
            if one.switch is switch:
                word = _switch_word(one) if switch else _link_word(one)
                key = one.bus, one.number, word
                times = found[key].times + 1 if key in found else 1
                found[key] = Event(*key, times, line, log.age_s(line))
    return list(found.values())


def _switch_word(one: LoggedXid) -> str:
    word = one.text.removeprefix(", ").partition(",")[0]
    return word if word in WORDS else ""


def _link_word(one: LoggedXid) -> str:
    if one.number == NVLINK:
        return nvlink_registers.reading(one.text)
    match = _LINK_WORD.match(one.text)
    return match[1].replace("-f", "f") if match else ""


def recovery(text: str) -> str:
    """The action that a line of Xid 154 asks for: `GPU Reset Required`; '' if it names none."""
    match = _RECOVERY.search(text)
    return match[1] if match else ""


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on an event, as text, with its remedy."""

    verdict: Verdict
    text: str
    fix: str
    event: Event


def of_device(subject: str, judged: list[Judged]) -> Found:
    """The finding on a device: its worst errors, then the others."""
    ordered = sorted(judged, key=lambda one: (SEVERITY.index(one.verdict), one.event.age_s))
    more = len(ordered) - NAMED
    message = "; ".join(one.text for one in ordered[:NAMED]) + (f"; and {more} more" if more > 0 else "")
    verdict = ordered[0].verdict
    lines = tuple(evidence(one.event.line) for one in ordered if one.verdict is verdict)
    return Found(verdict, subject, message, lines, "" if verdict is Verdict.PASS else ordered[0].fix)


@dataclass(slots=True)
class Resets:
    """When devices were reset, in seconds of the boot clock, by their bus."""

    reset: dict[str, float] = field(default_factory=dict)  # by the kernel
    cleared: dict[str, float] = field(default_factory=dict)  # the driver said that it needs no action any more
    driver_s: float | None = None  # when the driver was last loaded

    def after(self, bus: str, at_s: float) -> bool:
        """Whether the device was reset, or declared to be in order, after `at_s`."""
        return self.reset.get(bus, NEVER_S) > at_s or self.cleared_after(bus, at_s)

    def cleared_after(self, bus: str, at_s: float) -> bool:
        """Whether the driver withdrew its request for an action after `at_s`."""
        return self.cleared.get(bus, NEVER_S) > at_s

    def reloaded_after(self, at_s: float) -> bool:
        """Whether the driver was loaded again after `at_s`."""
        return self.driver_s is not None and self.driver_s > at_s


def resets(log: PastLog) -> Resets:
    """The resets that the log tells of. NVIDIA's driver writes none itself; the kernel does since Linux 6.10."""
    found = Resets()
    for line in log.lines:
        if done := _PCI_RESET.search(line.text):
            found.reset[short_bus(done[1])] = line.at_s
        elif _RELOADED.search(line.text):
            found.driver_s = line.at_s
        for one in logged_xids(line.text):
            if one.number == RECOVERY and recovery(one.text) == NO_ACTION:
                found.cleared[one.bus] = line.at_s
    return found
