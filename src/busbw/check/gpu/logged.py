"""Errors of GPUs and NVSwitches in the kernel log so far: how many, the latest time, and the line."""

from dataclasses import dataclass

from busbw.check.base import unanswered
from busbw.core.checking import Evidence, Found
from busbw.core.overall import AS_ROOT
from busbw.host.kernel_log import KMSG, xids
from busbw.host.past_kernel_log import Line, PastLog

CATALOG = "NVIDIA's Xid catalog"
WINDOW_S = 2 * 3600  # in which Azure's node health checks count an Xid
UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True, slots=True)
class Event:
    """All errors of one number and device; `line` is the latest."""

    bus: str
    number: int
    times: int
    line: Line
    age_s: float

    @property
    def ago(self) -> str:
        """`3 h ago`."""
        return f"{_span(self.age_s)} ago"

    @property
    def repeated(self) -> str:
        """` x 3`; '' if it was logged once."""
        return f" x {self.times}" if self.times > 1 else ""

    @property
    def evidence(self) -> Evidence:
        """The line."""
        return Evidence(KMSG, self.line.text, "none")


def events(log: PastLog, *, switch: bool) -> list[Event]:
    """The Xids of GPUs, or the SXids of NVSwitches."""
    found: dict[tuple[str, int], Event] = {}
    for line in log.lines:
        for one in xids(line.text):
            if one.switch is switch:
                key = one.bus, one.number
                before = found[key].times if key in found else 0
                found[key] = Event(one.bus, one.number, before + 1, line, log.age_s(line))
    return sorted(found.values(), key=lambda event: (event.bus, event.age_s))


def recent(event: Event) -> bool:
    """Whether it is recent enough to count as current."""
    return event.age_s <= WINDOW_S


def reaches(log: PastLog) -> str:
    """How far back the log goes: `12 d`."""
    return _span(log.now_s - log.begins_s)


def unread_log(log: PastLog) -> Found:
    """The finding where the log cannot be read."""
    return unanswered("", f"the kernel log cannot be read: {log.reason}", log.reason, fix=AS_ROOT)


def _span(seconds: float) -> str:
    return next((f"{seconds / unit:.0f} {name}" for unit, name in UNITS if seconds >= unit), "0 s")
