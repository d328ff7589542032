"""Texts of several hosts that say the same but for names, addresses and numbers.

`pattern` is equal for such texts. `merged_text` makes one of them, with the values as ranges:
`eth3 has MTU 1500` and `eth5 has MTU 4200` are `eth[3,5] has MTU 1500 or 4200`. Versions and PCI
addresses are listed: `driver 550.54.15 or 535.104.05`.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from busbw.core.host_ranges import fold

HOST = "HOST"  # stands for the name of each host
ANY = "*"  # stands for names that no short text lists
_NEVER = "(?!)"  # a pattern that matches nothing
_MAX_CHARACTERS = 48  # of listed or folded values
_MAX_LARGEST = 3
_MAX_LISTED = 3  # values that are not names; more are folded
_NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_WORD = r"(?:\w[\w.:+%-]*)?\d(?:[\w.:+%-]*[\w%])?"  # with a digit, and without a full stop
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "day": 86400.0}
_SIZES = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_FACTORS: dict[str, float] = {**_TIMES, "days": 86400.0, **_SIZES, "%": 1.0, "": 1.0}
_WITH_UNIT = re.compile(rf"({_NUMBER}) ?({'|'.join(filter(None, _FACTORS))}|)")
_AMOUNT = re.compile(rf"({_NUMBER})(?![\w.:,-])(?: ?({'|'.join(filter(None, _FACTORS))})(?!\w))?")
_BRACKETS = re.compile(r"\[[^\]]*\]")
_FOLDED = re.compile(r"[^\W\d][^,]*|\d+\.\d+\.\d+\.")  # without brackets: a name, an address
_PLURAL = re.compile(r"^( \w+?)s\b")


class HostText(NamedTuple):
    """A text of a host."""

    host: str
    text: str


def pattern(text: HostText) -> tuple[str, ...]:
    """The text without the names and values in it; a noun after a number is in the singular."""
    return tuple(_PLURAL.sub(r"\1", part) for part in _values(text.host).split(text.text)[::2])


def merged_text(texts: Sequence[HostText]) -> str:
    """One text for those of one pattern."""
    if len({text.text for text in texts}) == 1:
        return texts[0].text
    longest = max(texts, key=_length)
    literals = _values(longest.host).split(longest.text)[::2]
    merged = literals[0]
    for column, literal in zip(_columns(texts), literals[1:], strict=True):
        merged += _merged_values(column) + literal
    return merged


def for_any_host(texts: Sequence[HostText]) -> str:
    """The text for all hosts, with `HOST` for the host's name; '' if they differ in more."""
    if len({text.text for text in texts}) == 1:
        return texts[0].text
    general = {_own_name(text.host).sub(HOST, text.text) for text in texts}
    return general.pop() if len(general) == 1 else ""


def largest(texts: Sequence[HostText]) -> list[HostText]:
    """The largest numbers with their hosts, if texts of one pattern have more than two.

    They are those of the column with the most numbers, if a text has several.
    """
    columns = [column for column in _columns(texts) if _all_numbers(column)]
    column = max(columns, key=_count_distinct, default=[])
    if _count_distinct(column) <= 2:
        return []
    return sorted(column, key=_size, reverse=True)[:_MAX_LARGEST]


def amount(text: str) -> float | None:
    """The number that a text begins with, of a size in bytes and of a time in seconds; None if it
    begins with none, or with a version or an address.
    """
    match = _AMOUNT.match(text)
    return float(match[1]) * _FACTORS[match[2] or ""] if match else None


def _columns(texts: Sequence[HostText]) -> list[list[HostText]]:
    """For each place of a value, what the texts have there."""
    rows = [_host_values(text) for text in texts]
    return [list(column) for column in zip(*rows, strict=True)]


def _host_values(text: HostText) -> list[HostText]:
    """The values of a text, each as one of its host."""
    values = _values(text.host).split(text.text)[1::2]
    return [HostText(text.host, value) for value in values]


@lru_cache(maxsize=4096)
def _values(host: str) -> re.Pattern[str]:
    """What finds names and values: the host's name, times and sizes, and words with a digit."""
    units = "|".join([*_TIMES, "days", *_SIZES])
    amount = rf"(?<![\w.]){_NUMBER} (?:{units})(?![\w/])"
    return re.compile(rf"({_own_name(host).pattern}|{amount}|{_WORD})")


@lru_cache(maxsize=4096)
def _own_name(host: str) -> re.Pattern[str]:
    """What finds the host's name, with or without its domain."""
    names = {host, host.partition(".")[0]} - {""}
    longest_first = sorted((name for name in names if not name.isdigit()), key=len, reverse=True)
    either = "|".join(map(re.escape, longest_first)) or _NEVER
    return re.compile(rf"(?<![\w.-])(?:{either})(?![\w-]|\.\w)")


def _merged_values(column: Sequence[HostText]) -> str:
    distinct = list(dict.fromkeys(value for _, value in column))
    if len(distinct) == 1:
        return distinct[0]
    if all(value in (host, host.partition(".")[0]) for host, value in column):
        return HOST
    if _all_numbers(column):
        return _number_range(sorted(column, key=_size), "or" if len(distinct) == 2 else "to")
    text = fold(distinct)
    if len(distinct) <= _MAX_LISTED and not _FOLDED.fullmatch(_BRACKETS.sub("", text)):
        text = f"{', '.join(distinct[:-1])} or {distinct[-1]}"  # versions, PCI addresses
    if len(text) <= _MAX_CHARACTERS:
        return text
    first = f"{distinct[0]} and {len(distinct) - 1} more"
    return first if len(first) <= _MAX_CHARACTERS else ANY


def _number_range(ordered: Sequence[HostText], between: str) -> str:
    """`3 to 120`, `10 to 30 s`, `5 min to 2 h`."""
    least, most = ordered[0].text, ordered[-1].text
    number, _, unit = least.partition(" ")
    if unit and most.endswith(f" {unit}"):
        least = number
    return f"{least} {between} {most}"


def _length(text: HostText) -> int:
    return sum(map(len, _values(text.host).split(text.text)[::2]))


def _count_distinct(column: Sequence[HostText]) -> int:
    return len({value for _, value in column})


def _all_numbers(column: Sequence[HostText]) -> bool:
    return all(_WITH_UNIT.fullmatch(value) for _, value in column)


def _size(text: HostText) -> float:
    match = _WITH_UNIT.fullmatch(text.text)
    return float(match[1]) * _FACTORS[match[2]] if match else 0.0
