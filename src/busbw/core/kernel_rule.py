"""What a rule of the kernel log is: the forms of a line, what each means, and for how long.

A line tells of a moment. What it says may last, as a disk that was switched off, or be over, as a
process that was killed. So each sign says how long it holds and why.
"""

import re
from dataclasses import dataclass, field

from busbw.core.finding import CheckRow, Layer, Verdict

KMSG = "/dev/kmsg"
# for which an event that is over is shown: somebody has to have the time to read it
DAY_S = 86400.0
BOOT_S = 60.0  # in which firmware and the kernel report what the previous boot left behind
SUBJECT = "subject"  # the named group of a pattern: a PCI address, disk, process, server


@dataclass(frozen=True, slots=True)
class Sign:
    """One form of a line. `says` is the message, with the named groups of `pattern` in braces.

    It holds for `holds_s` seconds, or until the next boot if that is None; `because` is the reason.
    `ends` is a later line that ends it: on its group `subject` if it has one, else on all subjects.
    A sign of the first BOOT_S seconds that is `left_over` was left by the previous boot, and only
    warns.
    """

    pattern: re.Pattern[str]
    verdict: Verdict
    says: str
    because: str
    holds_s: float | None = None
    ends: re.Pattern[str] | None = None
    left_over: bool = False


@dataclass(frozen=True, slots=True)
class KernelRule:
    """A check of the kernel log: the first sign that matches a line counts.

    `covered_by_xid` is an Xid that reports the same on the same GPU, so that it is not reported
    twice.
    """

    row: CheckRow
    signs: tuple[Sign, ...]
    covered_by_xid: int | None = None


@dataclass(frozen=True, slots=True)
class Texts:
    """What a rule says of itself."""

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
        why=f"{texts.why} {_holding(signs)}",
        fix=texts.fix,
        stays=texts.stays,
        reads=(KMSG,),
        sources=texts.sources,
    )
    return KernelRule(row, signs, covered_by_xid)


def _holding(signs: tuple[Sign, ...]) -> str:
    """`An error counts until the next boot (a bad block stays bad), others for 24 h (the drive
    was reset).`
    """
    reasons: dict[str, list[str]] = {}
    for sign in signs:
        known = reasons.setdefault(_span(sign), [])
        if sign.because not in known:
            known.append(sign.because)
    spans = [f"{span} ({'; '.join(known)})" for span, known in reasons.items()]
    return f"An error counts {', others '.join(spans)}."


def _span(sign: Sign) -> str:
    if sign.holds_s is not None:
        return f"for {sign.holds_s / 3600:.0f} h"
    return "until the next boot or a line that ends it" if sign.ends else "until the next boot"


def line(text: str) -> re.Pattern[str]:
    """A pattern of a line.

    `<bdf>` is a PCI address, `<disk>` a disk's name, both as the subject.
    """
    named = text.replace("<bdf>", r"(?P<subject>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])")
    return re.compile(named.replace("<disk>", r"(?P<subject>[\w.\-]+)"), re.ASCII)
