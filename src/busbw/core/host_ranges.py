"""Many host names in one line: `gpu[001-064]`, `r[1-2]n[01-16]`, the notation of Slurm and PDSH."""

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from busbw.core.errors import UsageError

MOST_LISTED = 4  # names; more are folded
MOST_HOSTS = 65536  # of one entry: a mistyped range must not fill the memory
RANGE_HINT = "write ranges like gpu[001-064] or gpu[1,3-5]"
_PARTS = re.compile(r"(\d+)")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_SEPARATOR = re.compile(r"\s*,\s*|\s+")


def listed(names: Iterable[str]) -> str:
    """The names in a sentence: `h1, h2`, or folded if there are many."""
    every = list(names)
    return ", ".join(every) if len(every) <= MOST_LISTED else fold(every)


def fold(names: Iterable[str]) -> str:
    """The names, each once, in natural order, with their numbers as ranges.

    `gpu001 gpu002 gpu003 login` becomes `gpu[001-003],login`. Numbers with leading zeros keep their
    width. An address such as 10.0.0.1 is folded in its numbers too; an IPv6 address is left as it
    is, because its brackets mean something else.
    """
    unique = set(names)
    plain = sorted(name for name in unique if ":" in name)
    entries = [tuple(_PARTS.split(name)) for name in unique if ":" not in name]
    longest = max(map(len, entries), default=0)
    for position in range(longest - 1 - longest % 2, 0, -2):  # numbers are at odd positions
        entries = _fold_position(entries, position)
    entries.sort(key=_natural)
    return ",".join([*("".join(entry) for entry in entries), *plain])


def by_reason(reasons: Mapping[str, str]) -> list[str]:
    """A text for each reason, with its hosts: `gpu[001-064]: no route to HOST`.

    Reasons that differ only in the host's own name are one.
    """
    groups: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        own = re.escape(name.rpartition("@")[2])
        groups.setdefault(re.sub(rf"\b{own}\b", "HOST", reason), []).append(name)
    return [
        f"{listed(names)}: {reason if len(names) > 1 else reasons[names[0]]}"
        for reason, names in groups.items()
    ]


def _fold_position(entries: Sequence[tuple[str, ...]], position: int) -> list[tuple[str, ...]]:
    """The entries, those that differ only in the number at this position as one."""
    folded: list[tuple[str, ...]] = []
    groups: dict[tuple[str, ...], list[str]] = {}
    for entry in entries:
        if position >= len(entry) or not entry[position].isdecimal():
            folded.append(entry)
            continue
        others = (*entry[:position], "", *entry[position + 1 :])
        groups.setdefault(others, []).append(entry[position])
    for others, numbers in groups.items():
        before, after = others[:position], others[position + 1 :]
        folded += [(*before, text, *after) for text in _ranges(numbers)]
    return folded


def _ranges(numbers: Sequence[str]) -> list[str]:
    """Numbers as `7` or `[1-3,7]`: one text per width with leading zeros, one for all others."""
    padded = {len(number) for number in numbers if number[0] == "0" and len(number) > 1}
    groups: dict[int, list[int]] = {}
    for number in numbers:
        width = len(number) if len(number) in padded else 1
        groups.setdefault(width, []).append(int(number))
    return [_brackets(sorted(group), width) for width, group in groups.items()]


def _brackets(numbers: Sequence[int], width: int) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [f"{run[0]:0{width}}-{run[-1]:0{width}}" for run in runs if len(run) > 1]
    singles = [f"{run[0]:0{width}}" for run in runs if len(run) == 1]
    if len(numbers) == 1:
        return singles[0]
    ordered = sorted([*texts, *singles], key=lambda text: int(text.split("-")[0]))
    return f"[{','.join(ordered)}]"


def _natural(entry: tuple[str, ...]) -> list[tuple[int, int, str]]:
    """A key that sorts n2 before n10, and a range by its first number."""
    key = []
    for part in entry:
        number = re.search(r"\d+", part)
        is_number = number is not None and (part[0] == "[" or part.isdecimal())
        key.append((1, int(number[0]), part) if number and is_number else (0, 0, part))
    return key


def is_range(text: str) -> bool:
    """Whether the brackets at the start of `text` hold numbers, and no IPv6 address."""
    match = _BRACKETS.match(text)
    return match is not None and ":" not in match[1] and match[1][:1].isdigit()


def split_words(text: str, where: str) -> list[str]:
    """The words between commas and spaces; UsageError for brackets that do not match."""
    _check_brackets(text, where)
    words = [""]
    for position, part in enumerate(_BRACKETS.split(text.strip())):  # text and ranges in turn
        if position % 2:
            words[-1] += f"[{part}]"
            continue
        end, *others = _SEPARATOR.split(part)
        words[-1] += end
        words += others
    return words


def _check_brackets(text: str, where: str) -> None:
    is_open = False
    for character in text:
        if character in "[]" and is_open == (character == "["):
            raise UsageError(f"{where}: the brackets do not match", RANGE_HINT)
        is_open = character == "[" or (is_open and character != "]")
    if is_open:
        raise UsageError(f"{where}: a bracket is not closed", RANGE_HINT)


def expand(text: str, where: str) -> list[str]:
    """The names of `text`, the last number counting fastest; `text` itself without brackets.

    UsageError for a malformed range, and for more than MOST_HOSTS names.
    """
    parts = _BRACKETS.split(text)  # text and ranges in turn
    choices = [[part] for part in parts]
    for position in range(1, len(parts), 2):
        choices[position] = _numbers(parts[position], f"{where}: '{text}'")
    count = math.prod(map(len, choices))
    if count > MOST_HOSTS:
        raise UsageError(
            f"{where}: '{text}' names {count} hosts, more than {MOST_HOSTS}", RANGE_HINT
        )
    return ["".join(parts) for parts in itertools.product(*choices)]


def _numbers(ranges: str, where: str) -> list[str]:
    """The numbers of `1,3-5`, with the width of the first one of each range."""
    numbers: list[str] = []
    for text in ranges.split(","):
        match = _RANGE.fullmatch(text)
        if match is None:
            raise UsageError(f"{where}: '{text}' is not a number or a range", RANGE_HINT)
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise UsageError(
                f"{where}: the range {text} runs backwards", f"write it as {last}-{first}"
            )
        if last[0] == "0" and len(last) != len(first):
            raise UsageError(
                f"{where}: the ends of the range {text} have different widths",
                f"write it as {first:0>{len(last)}}-{last}",
            )
        if int(last) - int(first) >= MOST_HOSTS:
            raise UsageError(
                f"{where}: the range {text} has more than {MOST_HOSTS} numbers", RANGE_HINT
            )
        numbers += [f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1)]
    return numbers
