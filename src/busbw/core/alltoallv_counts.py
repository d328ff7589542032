"""The text of --counts: where alltoallv's bytes for each pair of ranks come from.

`zipf:1.05,rows=1e7`, `file:counts.csv`, or a path.
"""

from dataclasses import dataclass, fields
from typing import Any

from busbw.core.errors import UsageError

KIND, FILE = "zipf", "file:"
HINT = (
    "write it like --counts zipf:1.05, --counts zipf:1.05,rows=1e7,ids=65536,dedup or --counts"
    " file:counts.csv"
)
MOST_EXPONENT = 10.0  # the first id is then 99.9 % of all
# smallest and largest value
NUMBERS = {"rows": (1, 10**12), "ids": (1, 10**12), "seed": (0, 2**53)}
FLAGS = ("dedup", "sorted")


@dataclass(frozen=True, slots=True)
class Zipf:
    """Embedding lookups: every rank asks for a batch of ids, and the rank that holds an id's row
    sends it.

    The k-th most popular of `rows` ids has a probability proportional to k ** -exponent. With
    `dedup` a batch of `ids` asks for each of its ids once. Popular ids are scattered over the rows
    by `seed`; `sorted` puts them first, so that rank 0 holds the most popular.
    """

    exponent: float
    rows: int = 10_000_000
    ids: int = 65_536
    seed: int = 1
    dedup: bool = False
    sorted: bool = False

    @property
    def text(self) -> str:
        """The complete spec, with the defaults that matter: `zipf:1.05,rows=10000000,seed=1`."""
        ids = f",ids={self.ids},dedup" if self.dedup else ""
        order = "sorted" if self.sorted else f"seed={self.seed}"
        return f"{KIND}:{self.exponent:g},rows={self.rows}{ids},{order}"


@dataclass(frozen=True, slots=True)
class MatrixFile:
    """A file with a square matrix; only the ratios of its values count."""

    path: str


def parse_counts(text: str) -> Zipf | MatrixFile:
    """The source that the text names; UsageError for an invalid exponent, key or value."""
    kind, _, rest = text.partition(":")
    if kind != KIND:
        return MatrixFile(text.removeprefix(FILE))
    exponent, *items = rest.split(",")
    values: dict[str, Any] = {}
    for item in items:
        name, value = _item(item, text)
        if name in values:
            raise UsageError(f"--counts {text}: {name} is given twice", "leave out one of them")
        values[name] = value
    if "ids" in values and "dedup" not in values:
        raise UsageError(
            f"--counts {text}: the ratio of bytes depends on ids only with dedup",
            "add dedup, or leave out ids",
        )
    if "seed" in values and "sorted" in values:
        raise UsageError(
            f"--counts {text}: sorted scatters nothing, so seed has no effect",
            "leave out one of them",
        )
    return Zipf(_exponent(exponent, text), **values)


def _exponent(word: str, text: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MOST_EXPONENT:
        raise UsageError(
            f"--counts {text}: the exponent '{word}' is not a number from 0 to {MOST_EXPONENT:g}",
            HINT,
        )
    return value


def _item(item: str, text: str) -> tuple[str, int]:
    name, equals, word = item.partition("=")
    if name in FLAGS and not equals:
        return name, True
    if name not in NUMBERS:
        known = ", ".join(field.name for field in fields(Zipf)[1:])
        raise UsageError(f"--counts {text}: '{item}' is none of {known}", HINT)
    least, most = NUMBERS[name]
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not (least <= value <= most and value.is_integer()):
        raise UsageError(
            f"--counts {text}: {name} '{word}' is not a whole number from {least} to {most:g}", HINT
        )
    return name, int(value)
