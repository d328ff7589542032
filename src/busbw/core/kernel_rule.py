"""What a rule of the kernel log is: the forms of a line, what each means, and for how long.

The rules stand in core/kernel_rules_*.toml.

A line reports a moment. Its condition may last, like a disk that was switched off, or be over, like
a process that was killed. So each sign states how long it holds and why.
"""

import re
from dataclasses import dataclass
from functools import cached_property

import msgspec

from busbw.core.finding import CheckRow, Layer, Verdict
from busbw.core.table_file import nested

KMSG = "/dev/kmsg"
DAY_S = 86400.0  # an event that is over is shown for so long, so that somebody can read it
BOOT_S = 60.0  # in which firmware and the kernel report what the previous boot left behind
TIMES = "times"
SUBJECT = "subject"  # the named group of a pattern: a PCI address, disk, process, server
# Only the modules that are loaded, and those that use others first: lsmod begins with the newest.
RELOAD_DRIVER = (
    "stop nvidia-persistenced, nvidia-fabricmanager and nvidia-dcgm; rmmod $(lsmod | grep -oE"
    " '^(nvidia|nv_peer_mem|gdrdrv)[a-z_]*'); modprobe nvidia"
)
# For words in braces in the texts of rules, where {subject} stays.
_TEXTS = {
    "{reload_driver}": RELOAD_DRIVER,
    "{repaired}": (
        "a reset or reboot helps if the fault was transient; if it comes back, replace the part"
    ),
    "{replaced}": "a replaced part stays",
}
_PCI_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]"
# For <name> in patterns: a PCI address and a name, both the subject.
_PATTERNS = {"bdf": rf"(?P<{SUBJECT}>{_PCI_ADDRESS})", "disk": rf"(?P<{SUBJECT}>[\w.\-]+)"}
_PLACE = re.compile(r"(?<!\?P)<(\w+)>")


class LogSign(msgspec.Struct, frozen=True, dict=True, forbid_unknown_fields=True):
    """One form of a line. `says` is the message, with the named groups of the pattern `line` in
    braces.

    The sign holds for `hours`, or until the next boot if that is None; `because` is the reason.
    `ends` is the pattern of a later line that ends it: for the subject in its group `subject`, or
    for all subjects if it has no such group. A sign that may be `left_over` from the previous boot
    only warns in the first BOOT_S seconds. One with `least` counts from so many events in `hours`
    on; the group `times` of a pattern is the number of events that a line stands for.
    """

    line: str
    verdict: Verdict
    says: str
    because: str
    hours: int | None = None
    ends: str = ""
    left_over: bool = False
    least: int = 1

    @property
    def holds_s(self) -> float | None:
        """Seconds for which it holds, or None."""
        return None if self.hours is None else self.hours * 3600.0

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """`line`, compiled."""
        return re.compile(self.line, re.ASCII)

    @cached_property
    def end(self) -> re.Pattern[str] | None:
        """`ends`, compiled; None if no line ends the sign."""
        return re.compile(self.ends, re.ASCII) if self.ends else None


@dataclass(frozen=True, slots=True)
class KernelRule:
    """A check of the kernel log: the first sign that matches a line counts.

    `covered_by_xid` is an Xid that reports the same fault of the same GPU. With it, the rule does
    not report the fault again.
    """

    row: CheckRow
    signs: tuple[LogSign, ...]
    covered_by_xid: int | None = None


class _Rule(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A rule as the file has it, with the texts of its check as in CheckRow."""

    id: str
    name: str
    layer: Layer
    title: str
    why: str
    fix: str
    stays: str
    sources: tuple[str, ...]
    date: str
    signs: tuple[LogSign, ...]
    covered_by_xid: int | None = None


def read_rules(path: str) -> tuple[KernelRule, ...]:
    """The rules of a file of the package."""
    table = nested(path)
    patterns = dict(_PATTERNS)
    for name, pattern in table.get("patterns", {}).items():
        patterns[name] = _filled(pattern, patterns)
    for rule in table["rule"]:
        for sign in rule["signs"]:
            for key in sign.keys() & {"line", "ends"}:
                sign[key] = _filled(sign[key], patterns)
    return tuple(map(_rule, msgspec.convert(table["rule"], list[_Rule])))


def _filled(pattern: str, patterns: dict[str, str]) -> str:
    return _PLACE.sub(lambda place: patterns[place[1]], pattern)


def _rule(given: _Rule) -> KernelRule:
    """The rule with the row of its check, which says how long the signs hold and why."""
    row = CheckRow(
        id=given.id,
        name=given.name,
        layer=given.layer,
        title=given.title,
        right="the log of this boot has no such error that still counts",
        why=f"{given.why} {_holding_text(given.signs)}",
        fix=_with_texts(given.fix),
        stays=_with_texts(given.stays),
        reads=(KMSG,),
        sources=given.sources,
    )
    return KernelRule(row, given.signs, given.covered_by_xid)


def _with_texts(text: str) -> str:
    for word, meaning in _TEXTS.items():
        text = text.replace(word, meaning)
    return text


def _holding_text(signs: tuple[LogSign, ...]) -> str:
    """`An error counts until the next boot (a bad block stays bad), others for 24 h (...)`."""
    reasons: dict[str, list[str]] = {}
    for sign in signs:
        of_span = reasons.setdefault(_span(sign), [])
        if sign.because not in of_span:
            of_span.append(sign.because)
    spans = [f"{span} ({'; '.join(of_span)})" for span, of_span in reasons.items()]
    return f"An error counts {', others '.join(spans)}."


def _span(sign: LogSign) -> str:
    if sign.hours is not None:
        return f"for {sign.hours} h"
    return "until the next boot or a line that ends it" if sign.ends else "until the next boot"
