"""What dispatch and combine move, and the bytes that each bandwidth counts. These definitions stand
here and nowhere else.

A token is a row of `hidden` elements. Dispatch sends it once to each rank that has any of its
experts, its own rank included; combine returns one row for each that was sent. A bandwidth is bytes
over the time from the first rank's start to the last rank's end:

wire        bytes that leave a rank for other ranks, of the rank with the most
received    bytes of all rows that a rank receives in dispatch, and returns in combine, its own
            included, of the rank with the most: what the intranode test of DeepEP counts, and its
            internode test as NVL
selections  tokens x top-k rows of a rank, as if each chosen expert got a row of its own: what the
            low-latency test of DeepEP counts
hosts       bytes of the rows that a rank sends to hosts, a token once to each host that has any of
            its experts, its own included, of the rank with the most: what the test of DeepEP 2
            counts between hosts (scale-out), and the internode test as RDMA

Source: the tests of these names in github.com/deepseek-ai/DeepEP, at dd758ca of July 2026. They
count the rank that prints.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from busbw.moe.draws import Array

DISPATCH, COMBINE = "dispatch", "combine"
DIRECTIONS = (DISPATCH, COMBINE)


@dataclass(frozen=True, slots=True)
class Volumes:
    """What one dispatch moves: `sent[s][d]` are the bytes of the rows from rank s to rank d."""

    sent: list[list[int]]
    selections_bytes: int

    def matrix(self, direction: str) -> list[list[int]]:
        """The bytes from each rank to each."""
        return self.sent if direction == DISPATCH else [list(column) for column in self._columns()]

    def wire_bytes(self, direction: str) -> int:
        matrix = self.matrix(direction)
        return max(sum(row) - row[rank] for rank, row in enumerate(matrix))

    @property
    def received_bytes(self) -> int:
        return max(map(sum, self._columns()))

    @property
    def imbalance(self) -> float:
        """The received rows of the rank with the most over the mean of all ranks."""
        return self.received_bytes * len(self.sent) / sum(map(sum, self.sent))

    def _columns(self) -> Iterable[tuple[int, ...]]:
        return zip(*self.sent, strict=True)


def destinations(ids: "Array", experts: int) -> "Array":
    """Whether a token goes to a rank, as 0 or 1: [rank, token, rank of the expert].

    Expert e is on rank e // (experts / ranks).
    """
    import numpy as np

    ranks, tokens, _ = ids.shape
    goes = np.zeros((ranks, tokens, ranks), dtype=np.int64)
    np.put_along_axis(goes, ids // (experts // ranks), 1, axis=2)
    return goes


def volumes(ids: "Array", experts: int, row_bytes: int) -> Volumes:
    """What a dispatch of these tokens moves."""
    _, tokens, top_k = ids.shape
    rows = destinations(ids, experts).sum(axis=1)
    return Volumes((rows * row_bytes).tolist(), tokens * top_k * row_bytes)


def bytes_to_hosts(ids: "Array", experts: int, row_bytes: int, per_host: int) -> list[list[int]]:
    """The bytes from each rank to each host, if a token is sent once to a host and passed on there.
    `per_host` is the number of ranks of a host; hosts have consecutive ranks.
    """
    goes = destinations(ids, experts)
    ranks, tokens, _ = goes.shape
    rows = goes.reshape(ranks, tokens, ranks // per_host, per_host).max(axis=3).sum(axis=1)
    sent: list[list[int]] = (rows * row_bytes).tolist()
    return sent
