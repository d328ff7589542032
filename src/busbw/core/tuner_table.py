"""The table that the tuner plugin of busbw-native reads (native/crates/plugin/src/tuner_table.rs):
one rule a line.

    busbw-tuner-table 1
    about device NVIDIA H200
    2 2 all_reduce 1024 4096 Ring LL 4   # 11.2 % less time than NCCL's choice (9.8 to 12.5)

A rule has ranks, hosts as NCCL counts them (hosts that NVLink joins may be one; * for any number),
collective, the smallest and the largest bytes, algorithm, protocol and the most channels (* for
NCCL's number). Lines that begin with `about` say how the table came about; the plugin does not read
them.

What NCCL runs a collective with, as tuners choose it.
"""

import itertools
import math
from collections.abc import Iterable, Sequence

import msgspec

from busbw.core.errors import UsageError
from busbw.core.pattern import ALGORITHMS, PROTOCOLS

# in NCCL's numbers; it asks tuners for no others
TUNED = ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce")


class Choice(msgspec.Struct, frozen=True, order=True):
    """Algorithm and protocol by NCCL's names, and the most channels (0: NCCL's number)."""

    algorithm: str
    protocol: str
    channels: int = 0

    def __str__(self) -> str:
        """`Ring LL128, 4 channels`."""
        channels = (
            f", {self.channels} channel{'' if self.channels == 1 else 's'}" if self.channels else ""
        )
        return f"{self.algorithm} {self.protocol}{channels}"

    @property
    def numbers(self) -> tuple[int, int]:
        """Row and column of NCCL's cost table."""
        return ALGORITHMS.index(self.algorithm), PROTOCOLS.index(self.protocol)


HEADER = "busbw-tuner-table 1"
COLUMNS = "# ranks hosts collective first last algorithm protocol channels"
ABOUT, ANY = "about", "*"
MOST_CHANNELS = 2**31 - 1  # a C int
KEYS = (
    "made",
    "device",
    "ranks",
    "hosts",
    "nccl",
    "network",
    "type",
    "measured",
    "variable",
    "state",
)


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One line. `hosts` is None for any number; `note` is its comment."""

    ranks: int
    hosts: int | None
    collective: str
    first: int
    last: int
    choice: Choice
    note: str = ""

    def line(self) -> str:
        """The line without its end."""
        words = (
            self.ranks,
            ANY if self.hosts is None else self.hosts,
            self.collective,
            self.first,
            self.last,
            self.choice.algorithm,
            self.choice.protocol,
            self.choice.channels or ANY,
        )
        return " ".join(map(str, words)) + (f"   # {self.note}" if self.note else "")


class Table(msgspec.Struct, kw_only=True):
    """The rules, and what the table says of itself: pairs of one of KEYS and a text."""

    rules: list[Rule] = []
    about: list[tuple[str, str]] = []

    def said(self, key: str) -> list[str]:
        """What the table says under a key."""
        return [text for name, text in self.about if name == key]

    def text(self) -> str:
        """The file."""
        about = [f"{ABOUT} {key} {text}" for key, text in self.about]
        return "".join(
            f"{line}\n" for line in (HEADER, *about, COLUMNS, *(rule.line() for rule in self.rules))
        )

    def choice(self, ranks: int, hosts: int, collective: str, size_bytes: int) -> Choice | None:
        """What the plugin would ask for."""
        for rule in self.rules:
            here = (
                rule.ranks == ranks
                and rule.hosts in (None, hosts)
                and rule.collective == collective
            )
            if here and rule.first <= size_bytes <= rule.last:
                return rule.choice
        return None


def parse(text: str, name: str) -> Table:
    """The table in a file's text; UsageError that names the line."""
    table, numbers, begun = Table(), [], False
    for number, whole in enumerate(text.split("\n"), 1):  # the plugin ends lines nowhere else
        line, _, note = (part.strip() for part in whole.partition("#"))
        if not line:
            continue
        if not begun:
            if line != HEADER:
                raise _wrong(name, number, f"is not `{HEADER}`", whole)
            begun = True
        elif line.split()[0] == ABOUT:
            table.about.append(_about(name, number, whole))
        else:
            table.rules.append(_rule(name, number, line, note))
            numbers.append(number)
    if not begun:
        raise UsageError(f"{name}: it is empty", "name a file that busbw tune has written")
    _refuse_overlaps(name, table.rules, numbers)
    return table


def _wrong(name: str, number: int, what: str, line: str) -> UsageError:
    return UsageError(
        f"{name}: line {number} {what}: {line.strip()}", "name a file that busbw tune has written"
    )


def _about(name: str, number: int, whole: str) -> tuple[str, str]:
    words = whole.split(maxsplit=2)
    if len(words) != 3 or words[1] not in KEYS:
        raise _wrong(name, number, f"does not say {', '.join(KEYS[:-1])} or {KEYS[-1]}", whole)
    return words[1], words[2].strip()


def _rule(name: str, number: int, line: str, note: str) -> Rule:
    words = line.split()
    if len(words) != 8:
        raise _wrong(name, number, f"has {len(words)} words, a rule has 8", line)
    ranks, hosts, collective, first, last, algorithm, protocol, channels = words
    for word, known in ((collective, TUNED), (algorithm, ALGORITHMS), (protocol, PROTOCOLS)):
        if word not in known:
            raise _wrong(
                name,
                number,
                f"has '{word}' where {', '.join(known[:-1])} or {known[-1]} belongs",
                line,
            )
    try:
        of_ranks, of_first, of_last = map(_number, (ranks, first, last))
        of_hosts, of_channels = (0 if word == ANY else _number(word) for word in (hosts, channels))
    except ValueError:
        raise _wrong(
            name, number, "needs whole numbers of ranks, hosts, bytes and channels", line
        ) from None
    if of_channels > MOST_CHANNELS:
        raise _wrong(
            name, number, f"has {channels} channels, the plugin reads up to {MOST_CHANNELS}", line
        )
    if of_first > of_last:
        raise _wrong(name, number, f"ends before it begins, at {last} bytes", line)
    choice = Choice(algorithm, protocol, of_channels)
    return Rule(
        ranks=of_ranks,
        hosts=of_hosts or None,
        collective=collective,
        first=of_first,
        last=of_last,
        choice=choice,
        note=note,
    )


def whole(text: str) -> int:
    """A whole number, -1 for other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else -1


def _number(word: str) -> int:
    """A whole number from 1 on; ValueError for other text."""
    if whole(word) < 1:
        raise ValueError(word)
    return int(word)


def _refuse_overlaps(name: str, rules: Sequence[Rule], numbers: Sequence[int]) -> None:
    for (one, at), (other, number) in itertools.combinations(zip(rules, numbers, strict=True), 2):
        hosts = None in (one.hosts, other.hosts) or one.hosts == other.hosts
        if (
            (one.ranks, one.collective) == (other.ranks, other.collective)
            and hosts
            and one.first <= other.last
            and other.first <= one.last
        ):
            raise UsageError(
                f"{name}: lines {at} and {number} are for the same sizes", "leave one of them"
            )


def ranges(chosen: Iterable[tuple[int, Choice | None]]) -> list[tuple[int, int, Choice]]:
    """The bytes for which each choice holds, from measured sizes and what was chosen there (None:
    NCCL's choice).

    Sizes between two measured ones follow the nearer on a logarithmic scale; there is no rule below
    the smallest and above the largest.
    """
    sizes = sorted(chosen, key=lambda pair: pair[0])
    found: list[tuple[int, int, Choice]] = []
    for at, (size, choice) in enumerate(sizes):
        if choice is None:
            continue
        first = _between(sizes[at - 1][0], size) + 1 if at else size
        last = _between(size, sizes[at + 1][0]) if at + 1 < len(sizes) else size
        if found and found[-1][2] == choice and found[-1][1] + 1 == first:
            found[-1] = (found[-1][0], last, choice)
        else:
            found.append((first, last, choice))
    return found


def _between(smaller: int, larger: int) -> int:
    """The last size that is nearer to the smaller one."""
    return min(max(math.isqrt(smaller * larger), smaller), larger - 1)
