"""Host names with ranges, as Slurm and PDSH write them: `gpu[001-064]`, `r[1-2]n[01-16]`.

`core.host_ranges.fold` is the way back.
"""

import itertools
import math
import re

from busbw.core.errors import UsageError

MOST_HOSTS = 65536  # of one entry: a mistyped range must not fill the memory
RANGE_HINT = "write ranges like gpu[001-064] or gpu[1,3-5]"
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
# Commas and spaces, but not those inside brackets. Brackets are not nested here.
_SEPARATOR = re.compile(r"(?:\s*,\s*|\s+)(?![^\[]*\])")


def is_range(text: str) -> bool:
    """Whether the brackets at the start of `text` hold numbers, and no IPv6 address."""
    match = _BRACKETS.match(text)
    return match is not None and ":" not in match[1] and match[1][:1].isdigit()


def split_words(text: str, where: str) -> list[str]:
    """The words between commas and spaces; UsageError for brackets that do not match."""
    is_open = False
    for character in text:
        if character in "[]" and is_open == (character == "["):
            raise UsageError(f"{where}: the brackets do not match", RANGE_HINT)
        is_open = character == "[" or (is_open and character != "]")
    if is_open:
        raise UsageError(f"{where}: a bracket is not closed", RANGE_HINT)
    return _SEPARATOR.split(text.strip())


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
