"""The records of a table, in blocks that never move: growth allocates one more block and copies no record.

A row's number gives its segment, and a segment its place in memory. Kernels find it as an offset from the first block, in units of 16
bytes, since blocks are allocations of their own.
"""

import torch

from busbw.core.errors import NoMeasurement

SEGMENT = 4096  # rows of a segment, a power of two
GROWTH = 32  # a growth adds at least this fraction of the rows
UNIT = 4  # elements of 16 bytes


class Store:
    """Blocks of records [rows, width] in fp32, the rows that are free (a stack), and a score per row."""

    def __init__(self, width: int, device: torch.device) -> None:
        self.width, self.device = width, device
        self.segment = SEGMENT
        self.blocks: list[torch.Tensor] = []
        self.rows: int = 0
        self._first: list[int] = []  # row of each block
        self.offsets = torch.empty(0, dtype=torch.int64, device=device)
        self.free = torch.empty(0, dtype=torch.int32, device=device)
        self.score = torch.empty(0, dtype=torch.int32, device=device)
        self.available = torch.zeros((), dtype=torch.int64, device=device)  # length of the stack

    @property
    def base(self) -> torch.Tensor:
        """The first block, from which offsets are counted."""
        return self.blocks[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all records."""
        return 4 * self.width * self.rows

    def step_for(self, needed: int, capacity: int | None) -> int:
        """Rows to add, so that at least `needed` more exist, as far as the capacity allows."""
        whole = -(-max(needed, self.rows // GROWTH, 1) // self.segment) * self.segment
        return whole if capacity is None else min(whole, capacity - self.rows)

    def grow(self, rows: int) -> None:
        """Add rows, all free.

        Raises:
            NoMeasurement: not enough memory. Nothing has changed then.
        """
        before, after = self.rows, self.rows + rows
        try:
            block = torch.empty(rows, self.width, dtype=torch.float32, device=self.device)
            # Rows are taken from the end of the stack: the lowest first.
            new = torch.arange(after - 1, before - 1, -1, dtype=torch.int32, device=self.device)
            free = torch.cat([self.free, torch.empty_like(new)])
            score = torch.cat([self.score, torch.zeros_like(new)])
        except (torch.OutOfMemoryError, RuntimeError) as error:
            raise self._no_room(rows, error) from error
        free.index_copy_(0, self.available + torch.arange(rows, device=self.device), new)
        self.available += rows
        self.blocks.append(block)
        self._first.append(before)
        base = self.base.data_ptr()
        starts = range(0, rows, self.segment)
        units = [(block.data_ptr() + 4 * self.width * first - base) // (4 * UNIT) for first in starts]
        self.offsets = torch.cat([self.offsets, torch.tensor(units, dtype=torch.int64).to(self.device)])
        self.free, self.score, self.rows = free, score, after

    def _no_room(self, rows: int, error: Exception) -> NoMeasurement:
        wanted, have = 4 * self.width * rows, self.nbytes
        return NoMeasurement(
            f"no memory for {rows} more rows ({wanted} B) of a table with {self.rows} ({have} B) on {self.device}: {error}",
            "give the table a capacity and an eviction, or more ranks",
        )

    def read(self, rows: torch.Tensor) -> torch.Tensor:
        """The records of rows, [n, width]."""
        made = torch.empty(len(rows), self.width, device=self.device)
        for block, inside, at in self._parts(rows):
            made[inside] = block[at]
        return made

    def write(self, rows: torch.Tensor, records: torch.Tensor) -> None:
        """Replace the records of rows, which are unique."""
        for block, inside, at in self._parts(rows):
            block[at] = records[inside]

    def _parts(self, rows: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """For each block with some of the rows: the block, positions in `rows`, and rows within the block."""
        firsts = torch.tensor(self._first, device=rows.device)
        number = torch.bucketize(rows.long(), firsts, right=True) - 1
        parts = []
        for one in number.unique().tolist():
            inside = (number == one).nonzero().flatten()
            parts.append((self.blocks[one], inside, rows[inside].long() - self._first[one]))
        return parts
