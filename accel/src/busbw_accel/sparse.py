"""Averages sparse gradients by exchanging the rows that ranks have.

NCCL has no collective for sparse tensors (https://github.com/pytorch/pytorch/issues/22400).

Each rank sums its rows with the same id. Then ranks exchange how many rows each has. From these
counts every rank predicts the same bytes, and so chooses the same algorithm:

* GATHER: every rank gets the rows of all ranks and sums them.
* OWNERS: row i is summed by rank i mod n, and every rank gets the sums.
* DENSE: an all-reduce of the whole table, with one more column that marks the rows that some rank
  has.

MB that leave a host, predicted for a table of 1,000,000 x 64 in fp32, one rank per host, and 65,536
Zipf ids per rank with exponent 1.05 (2.2 % of the rows). The last column is the smaller of the
other two over OWNERS (benchmarks/sparse_ways.py):

    ranks   GATHER   OWNERS   DENSE
        2      5.6      7.7     260   0.73
        4     16.9     16.8     390   1.00
        8     39.7     30.0     455   1.32
       16     85.3     49.4     488   1.73
       64    358.1    117.3     512   3.05

With 262,144 ids (6.5 % of the rows) the factors are 0.74, 1.06, 1.48, 2.08 and 2.30. DENSE sends
the least if ranks have a large part of the rows and share hosts: rows for owners leave a host once
per rank, and an all-reduce leaves it once.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from busbw.core.errors import UsageError
from busbw_accel.codecs.base import ring_bytes
from busbw_accel.codecs.dense import DTYPES
from busbw_accel.communicator import Communicator

GATHER, OWNERS, DENSE = "gather", "owners", "dense"
INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows grouped by id. The rows with id `ids[i]` are `order[ends[i] : ends[i + 1]]`.

    Ids ascend.
    """

    ids: torch.Tensor  # [distinct]
    order: torch.Tensor  # [rows]
    ends: torch.Tensor  # [distinct + 1], from 0

    def sums(self, rows: torch.Tensor, length: int, scale: float = 1.0) -> torch.Tensor:
        """The sum of each group of `rows` [rows, width], times `scale`.

        The result, [length, width], ends with zeros, and has the same bits on every rank.
        """
        if not len(self.order):
            return rows.new_zeros(length, rows.shape[1])
        ends = F.pad(self.ends, (0, length - len(self.ids)), value=len(self.order))  # empty groups
        scales = torch.full_like(self.order, scale, dtype=rows.dtype) if scale != 1 else None
        # Adds the rows of a group one after the other, in one pass over memory. index_add_ on a GPU
        # adds in any order.
        return F.embedding_bag(
            self.order, rows, ends, mode="sum", include_last_offset=True, per_sample_weights=scales
        )


def grouped(ids: torch.Tensor, padding: int = 0) -> Groups:
    """Group rows by id. The `padding` rows, which have the largest id, are in no group."""
    ascending, order = ids.sort(stable=True)
    unique_ids, lengths = torch.unique_consecutive(ascending, return_counts=True)
    ends = F.pad(lengths.cumsum(0), (1, 0))
    if padding:
        return Groups(unique_ids[:-1], order[:-padding], ends[:-1])
    return Groups(unique_ids, order, ends)


def predicted_bytes(
    counts: Sequence[int], rows: int, distinct: float, sent: int, dense: int, hosts: int
) -> dict[str, float]:
    """The bytes that leave a host, by algorithm.

    `counts`: rows of each rank. `rows`: rows of the table. `distinct`: rows that some rank has.
    `sent`: bytes of a row that is sent with its id. `dense`: bytes of a row in an all-reduce.
    `hosts`: the number of hosts, which have equal numbers of ranks. Gathers and all-reduces use
    rings.
    """
    ranks, largest = len(counts), max(counts)
    return {
        GATHER: (ranks - 1) * largest * sent,
        OWNERS: (ranks / hosts * (1 - 1 / hosts) * largest + (ranks - 1) / ranks * distinct) * sent,
        DENSE: 2 * (ranks - 1) / ranks * rows * dense,
    }


def fewest_bytes(counts: Sequence[int], rows: int, sent: int, dense: int, hosts: int) -> str:
    """The algorithm with the fewest predicted bytes.

    The number of distinct rows is not known yet. It is taken as that of independent uniform ids,
    which share the fewest rows.
    """
    untouched = 1.0
    for count in counts:
        untouched *= 1 - count / rows
    predicted = predicted_bytes(counts, rows, rows * (1 - untouched), sent, dense, hosts)
    return min(predicted, key=predicted.__getitem__)


class Room:
    """Memory that exchanges on a CPU use again.

    New memory took 0.4 ms per MB (benchmarks/sparse_gradients_2cpu_202611).
    """

    def __init__(self) -> None:
        self._kept = torch.empty(0)

    def of(self, count: int, like: torch.Tensor) -> torch.Tensor:
        """`count` elements of the type and device of `like`, valid until the next call."""
        if like.is_cuda:  # torch itself keeps GPU memory for later
            return like.new_empty(count)
        if self._kept.dtype != like.dtype or len(self._kept) < count:
            self._kept = like.new_empty(1 << (count - 1).bit_length())
        return self._kept[:count]


class SparseAverage:
    """The average of one sparse gradient over the ranks of a communicator.

    `across`: bytes that left this rank's host so far.
    """

    def __init__(
        self, gradient: torch.Tensor, comm: Communicator, hosts: int, wire: str, room: Room
    ) -> None:
        """`gradient` is a COO tensor with one sparse dimension.

        `hosts`: the number of hosts of all ranks. `wire`: the format of rows, as in Settings.

        Raises:
            UsageError: the gradient has more sparse dimensions or no floating-point type.
        """
        self.across = 0
        self._room = room
        self._check(gradient)
        # Not staged: that needs equal sizes on all ranks.
        self._comm = dataclasses.replace(comm, staging=None)
        # On a single host each rank has its own link.
        self._hosts = hosts if hosts > 1 else comm.size
        self._shape, self._dtype = gradient.shape, gradient.dtype
        self._width = math.prod(gradient.shape[1:])
        # The type of sums.
        self._exact = torch.float32 if gradient.dtype.itemsize < 4 else gradient.dtype
        self._wire = DTYPES.get(wire, gradient.dtype)
        # int32 has half the bytes.
        id_type = torch.int32 if gradient.shape[0] <= INT32_MAX else torch.int64
        self._ids = gradient._indices()[0].to(id_type)
        self._values = gradient._values().reshape(-1, self._width).to(self._exact)

    @staticmethod
    def _check(gradient: torch.Tensor) -> None:
        where = f"a sparse gradient of shape {tuple(gradient.shape)}"
        if gradient.sparse_dim() != 1:
            raise UsageError(
                f"{where} has {gradient.sparse_dim()} sparse dimensions, and accel exchanges rows:"
                " one sparse dimension, the first",
                "use nn.Embedding(sparse=True), or a dense gradient",
            )
        if not gradient.is_floating_point():
            raise UsageError(
                f"{where} has type {gradient.dtype}, which is not a floating-point type",
                "use a dense gradient",
            )

    def result(self) -> torch.Tensor:
        """The average: a coalesced COO tensor with the same bits on every rank.

        It has each row that some rank has, even if the row is zero. On a GPU the host waits for the
        counts and the ids, which determine sizes, but not for the values.
        """
        groups = grouped(self._ids)
        totals = self._count_groups(groups)
        algorithm = self._choose_algorithm(totals)
        if not any(totals):
            ids, values = self._ids, self._values
        elif algorithm == DENSE:
            ids, values = self._reduce_table(groups)
        elif algorithm == OWNERS:
            owned, rows = self._send_to_owners(groups)
            ids, values = self._gather_sums(owned, rows, self._count_groups(owned))
        else:
            ids, values = self._gather_sums(groups, self._values, totals, 1 / self._comm.size)
        values = values.to(self._dtype).reshape(-1, *self._shape[1:])
        return torch.sparse_coo_tensor(
            ids[None].long(), values, self._shape, is_coalesced=True, check_invariants=False
        )

    def _choose_algorithm(self, totals: list[int]) -> str:
        if self._comm.group is None:  # without a network all ranks seem to have the same sizes
            return GATHER
        sent = self._ids.itemsize + self._width * self._wire.itemsize
        dense = (self._width + 1) * self._exact.itemsize
        return fewest_bytes(totals, self._shape[0], sent, dense, self._hosts)

    def _count_groups(self, groups: Groups) -> list[int]:
        """The number of groups of each rank."""
        count = torch.tensor([len(groups.ids)], device=groups.ids.device)
        return [total for (total,) in self._gather_counts(count)]

    def _gather_counts(self, counts: torch.Tensor) -> list[list[int]]:
        """The `counts` of each rank. The host waits for them."""
        self.across += self._comm.ring((self._comm.size - 1) * counts.nbytes)
        gathered: list[list[int]] = self._comm.all_gather(counts).tolist()
        return gathered

    def _gather_sums(
        self, groups: Groups, rows: torch.Tensor, totals: list[int], scale: float = 1.0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Gather the sums of each rank's groups, and sum those with the same id.

        `totals`: the number of groups of each rank. Returns ids and sums.
        """
        ranks, largest = self._comm.size, max(totals)
        no_row = self._shape[0]  # the id of padding
        ids = F.pad(groups.ids, (0, largest - len(groups.ids)), value=no_row)
        gathered_ids = ids.new_empty(ranks * largest)
        ids_gather = self._comm.begin_all_gather(gathered_ids, ids)
        sums = groups.sums(rows, largest, scale).to(self._wire)
        gathered = self._room.of(ranks * sums.numel(), sums).view(ranks, -1)
        values_gather = self._comm.begin_all_gather_large(gathered, sums.view(-1))
        self.across += self._comm.ring((ranks - 1) * (ids.nbytes + sums.nbytes))
        ids_gather.wait()
        # Ids are grouped while values are on their way.
        merged = grouped(gathered_ids, ranks * largest - sum(totals))
        values_gather.wait()
        every_row = gathered.view(-1, self._width).to(self._exact)
        return merged.ids, merged.sums(every_row, len(merged.ids))

    def _send_to_owners(self, groups: Groups) -> tuple[Groups, torch.Tensor]:
        """Send the sum of each group to the owner of its id.

        Returns the groups that this rank owns, and the rows in them.
        """
        comm = self._comm
        owners = groups.ids % comm.size
        counts = self._gather_counts(torch.bincount(owners, minlength=comm.size))  # [rank][owner]
        send_counts, receive_counts = counts[comm.rank], [sent[comm.rank] for sent in counts]
        by_owner = owners.argsort(stable=True)
        ids = groups.ids[by_owner]
        sums = groups.sums(self._values, len(ids), 1 / comm.size)[by_owner].to(self._wire)
        to_others = sum(send_counts) - send_counts[comm.rank]
        nbytes = (ids.nbytes + sums.nbytes) * to_others // max(1, sum(send_counts))
        self.across += comm.direct(nbytes)
        owned = grouped(comm.all_to_all_uneven(ids, send_counts, receive_counts))
        return owned, comm.all_to_all_uneven(sums, send_counts, receive_counts).to(self._exact)

    def _reduce_table(self, groups: Groups) -> tuple[torch.Tensor, torch.Tensor]:
        """All-reduce the whole table. Its last column counts the ranks that have a row.

        Returns the ids of rows that some rank has, and their sums.
        """
        table = torch.zeros(
            self._shape[0], self._width + 1, dtype=self._exact, device=self._values.device
        )
        sums = groups.sums(self._values, len(groups.ids), 1 / self._comm.size)
        table[groups.ids.long()] = F.pad(sums, (0, 1), value=1.0)
        self._comm.all_reduce(table)
        self.across += self._comm.ring(ring_bytes(table.nbytes, self._comm.size))
        ids = table[:, -1].nonzero().view(-1)
        return ids, table[ids, :-1]
