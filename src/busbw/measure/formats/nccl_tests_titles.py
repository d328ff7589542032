"""The line of titles of nccl-tests' table, of every release and of programs alike: which columns
there are, and in which units.

Releases differ in the left columns (the oldest leave out redop or root), in the last of each side
(`error`, `#wrong`), in the per-iteration and bitwise columns and in what follows both sides
(`timestamp`, `#iters`). Units stand in brackets behind a title (`time(us)`), or in the line below;
the oldest releases print milliseconds and state no unit.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

TIMES = ("time", "cputime")
TRAILING = ("#iters", "timestamp")  # what may follow the figures of a table with one side
# Titles of NCCL 1, of the first nccl-tests, and of nccom-test, by today's.
TODAY = {
    "bytes": "size",
    "n": "count",
    "elements": "count",
    "dtype": "type",
    "datatype": "type",
    "op": "redop",
    "res": "error",
    "delta": "error",
    "wrong": "#wrong",
    "time:avg": "time",
    "algo_bw": "algbw",
    "bus_bw": "busbw",
}
PER_SECOND = {"ns": 1e9, "us": 1e6, "usec": 1e6, "ms": 1e3, "msec": 1e3, "s": 1.0, "sec": 1.0}
RATES = {
    "GB/s": 1e9,
    "MB/s": 1e6,
    "GiB/s": 2.0**30,
    "MiB/s": 2.0**20,
    "Gb/s": 1e9 / 8,
    "Gbps": 1e9 / 8,
    "Gbit/s": 1e9 / 8,
}
_FIRST = re.compile(r"#?[ \t]*\b(?:size|bytes)\b", re.IGNORECASE)
_BUSBW = re.compile(r"bus_?bw", re.IGNORECASE)
_WORD = re.compile(r"([^\s()]+)(?:\(([^()\s]*)\))?")
_UNITS = re.compile(r"\(([^()\s]+)\)")


@dataclass(frozen=True, slots=True)
class Columns:
    """The titles: left of the figures, of each side, and behind both.

    `label` is what a launcher put before the line.

    `per_second` is how many units of time a second has, None where no line states the unit; `rate`
    is the unit of bandwidths in bytes/s. `sides` is how many placements a row has; `in_place` says
    that a single one is in place. `first` are the titles of NCCL 1.
    """

    left: tuple[str, ...]
    side: tuple[str, ...]
    sides: int = 2
    trailing: tuple[str, ...] = ()
    label: str = field(default="", compare=False)
    per_second: float | None = None
    rate: float = 1e9
    in_place: bool = False
    first: bool = False

    def shapes(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """The columns that a row can have, most first, and its sides: hypercube and the first
        alltoall print nothing under redop.
        """
        behind = tuple(
            word
            for name in self.trailing
            for word in ((name, name) if name == "timestamp" else (name,))
        )
        short = tuple(name for name in self.left if name != "redop")
        for sides in range(self.sides, 0, -1):
            for left in dict.fromkeys((self.left, short)):
                yield left + self.side * sides + behind, sides


MODERN = Columns(
    ("size", "count", "type", "redop", "root"), ("time", "algbw", "busbw", "#wrong"), per_second=1e6
)


def columns(line: str) -> Columns | None:
    """The columns when `line` is the line of titles, else None."""
    first = _FIRST.search(line)
    if first is None or not _BUSBW.search(line):
        return None
    found = [
        (_today(word), unit) for word, unit in _WORD.findall(line[first.start() :].lstrip("# \t"))
    ]
    names = [name for name, _ in found]
    times = [index for index, name in enumerate(names) if name in TIMES]
    if (
        not 1 <= len(times) <= 2
        or names[0] != "size"
        or not {"algbw", "busbw"} <= set(names[times[0] :])
    ):
        return None
    start = times[0]
    if len(times) == 2:
        end = times[1]
        behind = names[2 * end - start :]
    else:
        end = next((index for index, name in enumerate(names) if name in TRAILING), len(names))
        behind = names[end:]
    made = Columns(
        tuple(names[:start]),
        tuple(names[start:end]),
        len(times),
        tuple(behind),
        line[: first.start()],
    )
    made = replace(made, first="bytes" in first[0].lower())
    return with_units(made, [unit for _, unit in found if unit])


def _today(word: str) -> str:
    return TODAY.get(word.lower(), word.lower())


def with_units(titles: Columns, units: list[str]) -> Columns:
    """The columns with the first unit of a time and of a bandwidth among `units`."""
    per_second = next((PER_SECOND[unit] for unit in units if unit in PER_SECOND), titles.per_second)
    return replace(
        titles,
        per_second=per_second,
        rate=next((RATES[unit] for unit in units if unit in RATES), titles.rate),
    )


def units(line: str) -> list[str]:
    """The units in the line below the titles; [] for another line."""
    found = _UNITS.findall(line)
    return found if any(unit in RATES for unit in found) else []
