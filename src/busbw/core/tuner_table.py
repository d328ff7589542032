"""The table that the tuner plugin of busbw-native reads (native/crates/plugin/src/tuner_table.rs):
one rule a line.

    busbw-tuner-table 1
    about device NVIDIA H200
    2 2 all_reduce 1024 4096 Ring LL 4   # 11.2 % less time than NCCL's choice (9.8 to 12.5)

A rule has ranks, hosts as NCCL counts them (hosts that NVLink joins may be one; * for any number),
collective, the smallest and the largest bytes, algorithm, protocol and the largest number of
channels (* for NCCL's number). A ninth word is the bytes of a chunk, for NCCL 2.30 and newer. Lines
that begin with `about` say how the table was made; the plugin does not read them.
"""

import itertools
import math
from collections.abc import Iterable, Sequence

import msgspec

from busbw.core.errors import UsageError
from busbw.core.pattern import ALGORITHMS, PROTOCOLS
from busbw.core.shown import Shown
from busbw.core.tuning import TUNED, TuningChoice

HEADER = "busbw-tuner-table 1"
COLUMNS = "# ranks hosts collective first last algorithm protocol channels"
ABOUT, ANY = "about", "*"
MAX_CHANNELS = 2**31 - 1  # a C int
CHUNKS = range(4096, 2**30 + 1)  # bytes
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


class TunerRule(msgspec.Struct, frozen=True, kw_only=True):
    """One line. `hosts` is None for any number, `chunk` 0 for NCCL's; `note` is the comment."""

    ranks: int
    hosts: int | None
    collective: str
    first: int
    last: int
    choice: TuningChoice
    chunk: int = 0
    note: str = ""

    def line(self) -> str:
        """The text of the line, without a newline."""
        words = (
            self.ranks,
            ANY if self.hosts is None else self.hosts,
            self.collective,
            self.first,
            self.last,
            self.choice.algorithm,
            self.choice.protocol,
            self.choice.channels or ANY,
            *([self.chunk] if self.chunk else []),
        )
        return " ".join(map(str, words)) + (f"   # {self.note}" if self.note else "")


class TunerTable(Shown, msgspec.Struct, kw_only=True):
    """The rules, and in `about` how the table was made: pairs of one of KEYS and a text."""

    rules: list[TunerRule] = []
    about: list[tuple[str, str]] = []

    def texts_of(self, key: str) -> list[str]:
        """The texts of `about` with this key."""
        return [text for name, text in self.about if name == key]

    def text(self) -> str:
        about = [f"{ABOUT} {key} {text}" for key, text in self.about]
        rules = [rule.line() for rule in self.rules]
        return "\n".join([HEADER, *about, COLUMNS, *rules]) + "\n"

    def choice(
        self, ranks: int, hosts: int, collective: str, size_bytes: int
    ) -> TuningChoice | None:
        """What the plugin would ask for, None without a rule."""
        for rule in self.rules:
            if (
                rule.ranks == ranks
                and rule.hosts in (None, hosts)
                and rule.collective == collective
                and rule.first <= size_bytes <= rule.last
            ):
                return rule.choice
        return None


def parse(text: str, name: str) -> TunerTable:
    """The table in a file's text; UsageError that names the line."""
    table, numbers, has_header = TunerTable(), [], False
    for number, full_line in enumerate(text.split("\n"), 1):  # the plugin ends lines nowhere else
        line, _, note = (part.strip() for part in full_line.partition("#"))
        if not line:
            continue
        if not has_header:
            if line != HEADER:
                raise _error_in(name, number, f"is not `{HEADER}`", full_line)
            has_header = True
        elif line.split()[0] == ABOUT:
            table.about.append(_parse_about(name, number, full_line))
        else:
            table.rules.append(_parse_rule(name, number, line, note))
            numbers.append(number)
    if not has_header:
        raise UsageError(f"{name}: it is empty", "name a file that busbw tune has written")
    _refuse_overlaps(name, table.rules, numbers)
    return table


def _error_in(name: str, number: int, problem: str, line: str) -> UsageError:
    return UsageError(
        f"{name}: line {number} {problem}: {line.strip()}",
        "name a file that busbw tune has written",
    )


def _parse_about(name: str, number: int, line: str) -> tuple[str, str]:
    words = line.split(maxsplit=2)
    if len(words) != 3 or words[1] not in KEYS:
        keys = f"{', '.join(KEYS[:-1])} or {KEYS[-1]}"
        raise _error_in(name, number, f"does not say {keys}", line)
    return words[1], words[2].strip()


def _parse_rule(name: str, number: int, line: str, note: str) -> TunerRule:
    words = line.split()
    if len(words) not in (8, 9):
        raise _error_in(name, number, f"has {len(words)} words, a rule has 8 or 9", line)
    ranks, hosts, collective, first, last, algorithm, protocol, channels, *chunk = words
    for word, known in ((collective, TUNED), (algorithm, ALGORITHMS), (protocol, PROTOCOLS)):
        if word not in known:
            names = f"{', '.join(known[:-1])} or {known[-1]}"
            raise _error_in(name, number, f"has '{word}' where {names} belongs", line)
    try:
        rule = TunerRule(
            ranks=_number(ranks),
            hosts=None if hosts == ANY else _number(hosts),
            collective=collective,
            first=_number(first),
            last=_number(last),
            choice=TuningChoice(algorithm, protocol, 0 if channels == ANY else _number(channels)),
            chunk=_number(chunk[0]) if chunk else 0,
            note=note,
        )
    except ValueError:
        raise _error_in(
            name, number, "needs whole numbers of ranks, hosts, bytes and channels", line
        ) from None
    if rule.choice.channels > MAX_CHANNELS:
        problem = f"has {channels} channels, the plugin reads up to {MAX_CHANNELS}"
        raise _error_in(name, number, problem, line)
    if rule.chunk and rule.chunk not in CHUNKS:
        problem = f"has chunks of {rule.chunk} bytes, the plugin reads {CHUNKS[0]} to {CHUNKS[-1]}"
        raise _error_in(name, number, problem, line)
    if rule.first > rule.last:
        raise _error_in(name, number, f"ends before it begins, at {last} bytes", line)
    return rule


def whole(text: str) -> int:
    """A whole number, -1 for other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else -1


def _number(word: str) -> int:
    """A whole number from 1 on; ValueError for other text."""
    if whole(word) < 1:
        raise ValueError(word)
    return int(word)


def _refuse_overlaps(name: str, rules: Sequence[TunerRule], numbers: Sequence[int]) -> None:
    """UsageError for two rules of the same sizes; `numbers` are those of their lines."""
    numbered = zip(rules, numbers, strict=True)
    for (rule, number), (later, later_number) in itertools.combinations(numbered, 2):
        if (
            rule.ranks == later.ranks
            and rule.collective == later.collective
            and (None in (rule.hosts, later.hosts) or rule.hosts == later.hosts)
            and rule.first <= later.last
            and later.first <= rule.last
        ):
            raise UsageError(
                f"{name}: lines {number} and {later_number} are for the same sizes",
                "leave one of them",
            )


def ranges(
    chosen: Iterable[tuple[int, TuningChoice | None]],
) -> list[tuple[int, int, TuningChoice]]:
    """The smallest and the largest bytes for which each choice holds.

    `chosen` has measured sizes and the choice for each (None: NCCL's choice). Sizes between two
    measured ones follow the nearer one on a logarithmic scale. There is no rule below the smallest
    and above the largest.
    """
    sizes = sorted(chosen, key=lambda pair: pair[0])
    merged: list[tuple[int, int, TuningChoice]] = []
    for index, (size, choice) in enumerate(sizes):
        if choice is None:
            continue
        first = _last_nearer(sizes[index - 1][0], size) + 1 if index else size
        last = _last_nearer(size, sizes[index + 1][0]) if index + 1 < len(sizes) else size
        if merged and merged[-1][2] == choice and merged[-1][1] + 1 == first:
            merged[-1] = (merged[-1][0], last, choice)
        else:
            merged.append((first, last, choice))
    return merged


def _last_nearer(smaller: int, larger: int) -> int:
    """The last size that is nearer to the smaller one."""
    return min(max(math.isqrt(smaller * larger), smaller), larger - 1)
