"""What an alltoallv moves between its ranks, summed up from the matrix of the largest size."""

from collections.abc import Sequence

import msgspec


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes at the largest size. What a rank sends to itself is left out, except of size_bytes.

    source names the matrix: '' for nccl-tests' spread of 1, else another spread, --counts with its
    defaults, or the SHA-256 of a file's values. size_bytes is the largest total that a rank sends
    or receives. sender and receiver are the pair with the most bytes, pair_bytes. rank is the one
    that sends or receives the most, with both totals. host_bytes is the most that the ranks of one
    host send to other hosts, or receive from them. total_bytes is the sum over all ranks.
    """

    source: str
    ranks: int
    size_bytes: int
    total_bytes: int
    sender: int
    receiver: int
    pair_bytes: int
    rank: int
    sent_bytes: int
    received_bytes: int
    host_bytes: int = 0

    @property
    def rank_bytes(self) -> int:
        """What the busiest rank's link carries in its busier direction."""
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
    """The traffic of a matrix of bytes from rank i to rank j, with the host of each rank; None
    if no byte leaves its rank.
    """
    ranks = range(len(matrix))
    sent = [sum(row) - row[rank] for rank, row in enumerate(matrix)]
    received = [sum(column) - column[rank] for rank, column in enumerate(zip(*matrix, strict=True))]
    if not sum(sent):
        return None
    pair_bytes, sender, receiver = max(
        ((matrix[i][j], -i, -j) for i in ranks for j in ranks if i != j), default=(0, 0, 0)
    )
    rank = max(ranks, key=lambda one: max(sent[one], received[one]))
    return Traffic(
        source=source,
        ranks=len(matrix),
        size_bytes=max(*map(sum, matrix), *map(sum, zip(*matrix, strict=True))),
        total_bytes=sum(sent),
        sender=-sender,
        receiver=-receiver,
        pair_bytes=pair_bytes,
        rank=rank,
        sent_bytes=sent[rank],
        received_bytes=received[rank],
        host_bytes=_host_bytes(matrix, hosts),
    )


def _host_bytes(matrix: Sequence[Sequence[int]], hosts: Sequence[str]) -> int:
    out, into = dict.fromkeys(hosts, 0), dict.fromkeys(hosts, 0)
    for row, host in zip(matrix, hosts, strict=True):
        for size, other in zip(row, hosts, strict=True):
            if host != other:
                out[host] += size
                into[other] += size
    return max([*out.values(), *into.values()])
