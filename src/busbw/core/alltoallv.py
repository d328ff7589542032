"""The bytes of alltoallv: where those of each pair of ranks come from, and their sums.

`parse_counts` reads the text of --counts: `zipf:1.05,rows=1e7`, `file:counts.csv`, or a path.
`traffic` sums up the matrix of the largest size.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from busbw.core.errors import UsageError

KIND, FILE = "zipf", "file:"
HINT = (
    "write it like --counts zipf:1.05, --counts zipf:1.05,rows=1e7,ids=65536,dedup or --counts"
    " file:counts.csv"
)
LARGEST_EXPONENT = 10.0  # the first id is then 99.9 % of all
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
    kind, _, spec = text.partition(":")
    if kind != KIND:
        return MatrixFile(text.removeprefix(FILE))
    exponent, *items = spec.split(",")
    values: dict[str, Any] = {}
    for item in items:
        name, value = _parse_item(item, text)
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
    return Zipf(_parse_exponent(exponent, text), **values)


def _parse_exponent(word: str, text: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0 <= value <= LARGEST_EXPONENT:
        raise UsageError(
            f"--counts {text}: the exponent '{word}' is not a number from 0 to"
            f" {LARGEST_EXPONENT:g}",
            HINT,
        )
    return value


def _parse_item(item: str, text: str) -> tuple[str, int]:
    name, equals, word = item.partition("=")
    if name in FLAGS and not equals:
        return name, True
    if name not in NUMBERS:
        known = ", ".join(field.name for field in fields(Zipf)[1:])
        raise UsageError(f"--counts {text}: '{item}' is none of {known}", HINT)
    least, largest = NUMBERS[name]
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not (least <= value <= largest and value.is_integer()):
        raise UsageError(
            f"--counts {text}: {name} '{word}' is not a whole number from {least} to {largest:g}",
            HINT,
        )
    return name, int(value)


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What alltoallv moves, in bytes at the largest size. What a rank sends to itself counts only
    in size_bytes.
    """

    source: Annotated[
        str,
        Meta(
            description="the matrix: empty for nccl-tests' spread of 1, else another spread,"
            " --counts with its defaults, or the SHA-256 of a file's values"
        ),
    ]
    ranks: int
    size_bytes: Annotated[int, Meta(description="the largest total that a rank sends or receives")]
    total_bytes: Annotated[int, Meta(description="sum over all ranks")]
    sender: Annotated[
        int, Meta(description="sender and receiver are the pair with the most bytes, pair_bytes")
    ]
    receiver: int
    pair_bytes: int
    rank: Annotated[
        int,
        Meta(
            description="the one that sends or receives the most; sent_bytes and received_bytes"
            " are its totals"
        ),
    ]
    sent_bytes: int
    received_bytes: int
    host_bytes: Annotated[
        int,
        Meta(
            description="the most that the ranks of one host send to other hosts, or receive from"
            " them"
        ),
    ] = 0
    sent_out: Annotated[
        tuple[int, ...], Meta(description="what each rank sends to other hosts; empty on one host")
    ] = ()
    received_in: Annotated[
        tuple[int, ...],
        Meta(description="what each rank receives from other hosts; empty on one host"),
    ] = ()

    @property
    def rank_bytes(self) -> int:
        """The bytes that the busiest rank's link carries in its busier direction."""
        return max(self.sent_bytes, self.received_bytes)

    @property
    def rank_factor(self) -> float:
        """rank_bytes over the mean of all ranks, which is the same for sending and receiving."""
        return self.rank_bytes * self.ranks / self.total_bytes

    @property
    def pair_factor(self) -> float:
        """pair_bytes over the mean of all pairs of different ranks."""
        return self.pair_bytes * self.ranks * (self.ranks - 1) / self.total_bytes


def traffic(matrix: Sequence[Sequence[int]], source: str, hosts: Sequence[str]) -> Traffic | None:
    """The traffic of a matrix; None if no byte leaves its rank.

    matrix[i][j] are the bytes from rank i to rank j; `hosts` has the host of each rank.
    """
    ranks = range(len(matrix))
    sent = [sum(row) - row[rank] for rank, row in enumerate(matrix)]
    received = [sum(column) - column[rank] for rank, column in enumerate(zip(*matrix, strict=True))]
    if not sum(sent):
        return None
    # of equal pairs, the one with the lowest ranks
    pairs = ((matrix[i][j], -i, -j) for i in ranks for j in ranks if i != j)
    pair_bytes, sender, receiver = max(pairs, default=(0, 0, 0))
    busiest = max(ranks, key=lambda rank: max(sent[rank], received[rank]))
    sent_out, received_in = _between_hosts(matrix, hosts)
    return Traffic(
        source=source,
        ranks=len(matrix),
        size_bytes=max(*map(sum, matrix), *map(sum, zip(*matrix, strict=True))),
        total_bytes=sum(sent),
        sender=-sender,
        receiver=-receiver,
        pair_bytes=pair_bytes,
        rank=busiest,
        sent_bytes=sent[busiest],
        received_bytes=received[busiest],
        host_bytes=max(*_sums(sent_out, hosts), *_sums(received_in, hosts)),
        sent_out=tuple(sent_out) if any(sent_out) else (),
        received_in=tuple(received_in) if any(received_in) else (),
    )


def _between_hosts(
    matrix: Sequence[Sequence[int]], hosts: Sequence[str]
) -> tuple[list[int], list[int]]:
    """What each rank sends to other hosts, and what it receives from them."""
    sent_out, received_in = [0] * len(hosts), [0] * len(hosts)
    for sender, row in enumerate(matrix):
        for receiver, size in enumerate(row):
            if hosts[sender] != hosts[receiver]:
                sent_out[sender] += size
                received_in[receiver] += size
    return sent_out, received_in


def _sums(of_rank: Sequence[int], hosts: Sequence[str]) -> Iterable[int]:
    """The sum of the ranks of each host."""
    sums = dict.fromkeys(hosts, 0)
    for host, size in zip(hosts, of_rank, strict=True):
        sums[host] += size
    return sums.values()
