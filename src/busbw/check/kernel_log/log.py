"""What all checks of the kernel log share: how far it reaches, how old a line is, and the finding if it cannot be read."""

from busbw.check.base import DENIED, unanswered
from busbw.check.overall import SEVERITY
from busbw.check.types import Evidence, Found
from busbw.core.kernel_rule import KMSG
from busbw.core.units import span
from busbw.host.dmesg import Line, PastLog

ON_HOST = "busbw check, on the host as root"


def worst_first(findings: list[Found]) -> list[Found]:
    """The findings, the worst first, those of one verdict by their subject."""
    return sorted(findings, key=lambda one: (SEVERITY.index(one.verdict), one.subject))


def reaches(log: PastLog) -> str:
    """How far back the log goes: `12 d`."""
    return span(log.now_s - log.begins_s)


def repeated(times: int) -> str:
    """` x 3`; '' for once."""
    return f" x {times}" if times > 1 else ""


def evidence(line: Line) -> Evidence:
    """The line."""
    return Evidence(KMSG, line.text, "none")


def unread_log(log: PastLog) -> Found:
    """The finding where the log cannot be read: not offered to this user or container, or in this snapshot."""
    denied = any(word in log.reason for word in DENIED)
    return unanswered("", f"the kernel log cannot be read: {log.reason}", log.reason, fix="" if denied else ON_HOST)
