"""What a rule of the kernel log is: the forms of a line, what each means, and for how long.

A line reports a moment. Its condition may last, like a disk that was switched off, or be over, like
a process that was killed. So each sign states how long it holds and why.
"""

import re
from dataclasses import dataclass, field

from busbw.core.finding import CheckRow, Layer, Verdict

KMSG = "/dev/kmsg"
DAY_S = 86400.0  # an event that is over is shown for so long, so that somebody can read it
BOOT_S = 60.0  # in which firmware and the kernel report what the previous boot left behind
TIMES = "times"
SUBJECT = "subject"  # the named group of a pattern: a PCI address, disk, process, server
REPAIRED = "a reset or reboot helps if the fault was transient; if it comes back, replace the part"
REPLACED = "a replaced part stays"
_PCI_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]"
# Sources of rules.
NVSENTINEL = "NVSentinel's syslog health monitor"
GPUD = "gpud's kernel log matchers"
NPD = "Kubernetes' node-problem-detector, kernel-monitor.json"


@dataclass(frozen=True, slots=True)
class Sign:
    """One form of a line. `says` is the message, with the named groups of `pattern` in braces.

    The sign holds for `holds_s` seconds, or until the next boot if that is None; `because` is the
    reason. `ends` is a later line that ends it: for the subject in its group `subject`, or for all
    subjects if it has no such group. A sign that may be `left_over` from the previous boot only
    warns in the first BOOT_S seconds. One with `least` counts from so many events in `holds_s` on;
    the group `times` of a pattern is the number of events that a line stands for.
    """

    pattern: re.Pattern[str]
    verdict: Verdict
    says: str
    because: str
    holds_s: float | None = None
    ends: re.Pattern[str] | None = None
    left_over: bool = False
    least: int = 1


@dataclass(frozen=True, slots=True)
class KernelRule:
    """A check of the kernel log: the first sign that matches a line counts.

    `covered_by_xid` is an Xid that reports the same fault of the same GPU. With it, the rule does
    not report the fault again.
    """

    row: CheckRow
    signs: tuple[Sign, ...]
    covered_by_xid: int | None = None


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of a rule's check, as in CheckRow."""

    id: str
    name: str
    layer: Layer
    title: str
    why: str
    fix: str
    stays: str
    sources: tuple[str, ...] = field(default=())


def rule(texts: Texts, *signs: Sign, covered_by_xid: int | None = None) -> KernelRule:
    """A rule with the row of its check, which says how long the signs hold and why."""
    row = CheckRow(
        id=texts.id,
        name=texts.name,
        layer=texts.layer,
        title=texts.title,
        right="the log of this boot has no such error that still counts",
        why=f"{texts.why} {_holding_text(signs)}",
        fix=texts.fix,
        stays=texts.stays,
        reads=(KMSG,),
        sources=texts.sources,
    )
    return KernelRule(row, signs, covered_by_xid)


def _holding_text(signs: tuple[Sign, ...]) -> str:
    """`An error counts until the next boot (a bad block stays bad), others for 24 h (...)`."""
    reasons: dict[str, list[str]] = {}
    for sign in signs:
        of_span = reasons.setdefault(_span(sign), [])
        if sign.because not in of_span:
            of_span.append(sign.because)
    spans = [f"{span} ({'; '.join(of_span)})" for span, of_span in reasons.items()]
    return f"An error counts {', others '.join(spans)}."


def _span(sign: Sign) -> str:
    if sign.holds_s is not None:
        return f"for {sign.holds_s / 3600:.0f} h"
    return "until the next boot or a line that ends it" if sign.ends else "until the next boot"


def line(text: str) -> re.Pattern[str]:
    """A pattern of a line, in which <bdf> is a PCI address and <disk> a name, both the subject."""
    pattern = text.replace("<bdf>", f"(?P<{SUBJECT}>{_PCI_ADDRESS})")
    return re.compile(pattern.replace("<disk>", rf"(?P<{SUBJECT}>[\w.\-]+)"), re.ASCII)
