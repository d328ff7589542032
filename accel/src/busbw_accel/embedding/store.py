"""Where the records of a table are: in blocks of GPU memory, and in host memory.

`Store` has the records in blocks that never move: growth allocates one more block and copies no
record. A row's number gives its segment, and a segment its place in memory. Kernels find it as an
offset from the first block, in units of 16 bytes, since blocks are separate allocations. If rows
may be in host memory, each row is a segment, so that two rows can swap places.

`Tier` knows which rows are on the GPU, and which of them make room. A row is in one place: on the
GPU or in host memory. A lookup swaps its rows in host memory with rows on the GPU that were not
used lately: a kernel reads and writes pinned memory through its address on the GPU, in both
directions at the same time. Rows without room on the GPU are used where they are, so that a small
GPU part only costs time.
"""

import weakref

import torch

from busbw.core.errors import NoMeasurement, UsageError
from busbw_accel.embedding.settings import MAX_ROWS, TableSettings
from busbw_accel.offloading import host_memory
from busbw_accel.offloading.host_memory import Slab

# A list has at least 1/MIN_LIST_DIVISOR of the places, since making it needs a pass over all
# scores.
MIN_LIST_DIVISOR = 16
SEGMENT_ROWS = 4096  # rows of a segment, a power of two
MIN_GROWTH_DIVISOR = 32  # a growth adds at least 1/MIN_GROWTH_DIVISOR of the rows
UNIT_ELEMENTS = 4  # fp32 elements in 16 bytes


class Tier:
    """The places on the GPU: the row in each, the lookup that last used it, and a list of the
    places that make room next.
    """

    def __init__(self, places: int, device: torch.device) -> None:
        self.places = places
        self.owner = torch.arange(places, dtype=torch.int32, device=device)
        self.used = torch.zeros(places, dtype=torch.int32, device=device)
        self.victims = torch.empty(0, dtype=torch.int64, device=device)
        self.listed = 0  # the lookup for which the list was made
        # The counter TAKEN when the list was made.
        self.begin = torch.zeros((), dtype=torch.int64, device=device)
        self._taken = 0  # the same counter as the host knew it, which may lag behind

    def list_victims(
        self, scores: torch.Tensor | None, counter: torch.Tensor, lookup: int, ids: int, taken: int
    ) -> None:
        """Make a new list, if half of the last one may have been taken.

        Does not wait for the device.

        Args:
            scores: the scores of all rows; None: rows that were not used lately make room.
            counter: the counter TAKEN, on the device.
            lookup: the number of the lookup.
            ids: its number of ids.
            taken: the counter TAKEN as the host knows it.
        """
        if len(self.victims) and 2 * (taken - self._taken) < len(self.victims):
            return
        count = min(self.places, max(self.places // MIN_LIST_DIVISOR, 2 * ids))
        score = self.used if scores is None else scores[self.owner.long()]
        is_long = 4 * count > self.places  # then the order matters
        self.victims = torch.topk(score, count, largest=False, sorted=is_long).indices
        self.begin.copy_(counter)
        self.listed, self._taken = lookup, taken


def places_of(
    settings: TableSettings, record: int, device: torch.device, usable: bool
) -> tuple[int | None, int | None]:
    """The number of rows on the GPU (None: all), and the capacity of the table.

    `record`: bytes of a row with its states. `usable`: whether there are kernels for the device.

    Raises:
        UsageError: the table is not on a GPU with kernels, or the rows of the capacity do not fit.
        NoMeasurement: less host memory is usable than these rows need.
    """
    if settings.gpu_bytes is None:
        return None, settings.capacity
    if not usable:
        raise UsageError(
            f"gpu_bytes is {settings.gpu_bytes}, and there are no kernels for {device}",
            "rows in host memory need a GPU, Triton and a C compiler: leave gpu_bytes and"
            " host_bytes out, or apt install gcc",
        )
    near, far = settings.gpu_bytes // record, settings.host_bytes // record
    if not near:
        raise UsageError(
            f"gpu_bytes is {settings.gpu_bytes}, and a row with its states has {record} B",
            "give at least the bytes of a batch",
        )
    capacity = min(near + far, MAX_ROWS) if settings.capacity is None else settings.capacity
    if capacity > near + far:
        raise UsageError(
            f"a capacity of {capacity} rows needs {capacity * record} B; gpu_bytes"
            f" ({settings.gpu_bytes}) and host_bytes ({settings.host_bytes}) hold {near + far}"
            " rows",
            f"host_bytes={(capacity - near) * record}, or a capacity of {near + far}",
        )
    near = min(near, capacity)
    advice = (
        f"host_bytes={host_memory.usable() // record * record} is the most here; free -g shows what"
        " is free"
    )
    host_memory.require(
        (capacity - near) * record, f"{capacity - near} rows of a table in host memory", advice
    )
    return near, capacity


class Store:
    """Blocks of records [rows, width] in fp32, the rows that are free (a stack), and a score per
    row.
    """

    def __init__(self, width: int, device: torch.device, near: int | None = None) -> None:
        """`width`: elements of a record.

        `near`: the number of rows on the device; further rows are in host memory, pinned for a GPU.
        None: all rows are on the device.
        """
        self.width, self.device, self.near = width, device, near
        self.segment = SEGMENT_ROWS if near is None else 1
        self.blocks: list[torch.Tensor] = []
        self.rows: int = 0
        self._first: list[int] = []  # row of each block
        self._slabs: list[Slab] = []
        self.offsets = torch.empty(0, dtype=torch.int64, device=device)
        self.free = torch.empty(0, dtype=torch.int32, device=device)
        self.score = torch.empty(0, dtype=torch.int32, device=device)
        self.available = torch.zeros((), dtype=torch.int64, device=device)  # length of the stack
        if near is not None:
            weakref.finalize(self, _unpin, self._slabs, device)

    @property
    def base(self) -> torch.Tensor:
        """The first block, from which offsets are counted."""
        return self.blocks[0]

    @property
    def units(self) -> int:
        """Units of a record."""
        return self.width // UNIT_ELEMENTS

    @property
    def nbytes(self) -> int:
        """Bytes of all records."""
        return 4 * self.width * self.rows

    def step_for(self, needed: int, capacity: int | None) -> int:
        """The number of rows to add for `needed` more rows, as far as the capacity allows."""
        least = self.near or 1 if self.rows == 0 else self.rows // MIN_GROWTH_DIVISOR
        rows = -(-max(needed, least, 1) // SEGMENT_ROWS) * SEGMENT_ROWS
        return rows if capacity is None else min(rows, capacity - self.rows)

    def grow(self, rows: int) -> None:
        """Add rows, all free.

        The first growth of a store with rows in host memory adds at least those on the device.

        Raises:
            NoMeasurement: not enough memory. Nothing has changed then.
        """
        before, after = self.rows, self.rows + rows
        slabs: list[Slab] = []
        try:
            blocks = self._allocate_blocks(rows, slabs)
            # Rows are taken from the end of the stack: the lowest first.
            added = torch.arange(after - 1, before - 1, -1, dtype=torch.int32, device=self.device)
            free = torch.cat([added, self.free])
            scores = torch.zeros(rows, dtype=torch.int32, device=self.device)
            score = torch.cat([self.score, scores])
            base = (self.blocks + blocks)[0].data_ptr()
            added_offsets = [self._offsets_of(block, base) for block in blocks]
            offsets = torch.cat([self.offsets, *added_offsets])
        except (torch.OutOfMemoryError, RuntimeError) as error:
            _unpin(slabs, self.device)
            raise self._memory_error(rows, error) from error
        for block in blocks:
            self._first.append(before)
            before += len(block)
        self.blocks += blocks
        self._slabs += slabs
        self.offsets, self.free, self.score, self.rows = offsets, free, score, after
        self.available += rows

    def _allocate_blocks(self, rows: int, slabs: list[Slab]) -> list[torch.Tensor]:
        """Allocate blocks for `rows` more rows; slabs of host memory are appended to `slabs`."""
        near = rows if self.near is None else max(0, min(rows, self.near - self.rows))
        far = rows - near
        blocks = []
        if near:
            block = torch.empty(near, self.width, dtype=torch.float32, device=self.device)
            blocks.append(block)
        if far:
            size = 4 * self.width * far
            host_memory.require(
                size,
                f"{far} more rows of a table",
                "lower host_bytes, or give the table an eviction; free -g shows what is free",
            )
            slabs.append(Slab(size, pinned=self.device.type == "cuda"))
            blocks.append(slabs[0].take(self.width * far, torch.float32).view(far, self.width))
        return blocks

    def _offsets_of(self, block: torch.Tensor, base: int) -> torch.Tensor:
        first = (block.data_ptr() - base) // (4 * UNIT_ELEMENTS)
        return first + self.units * torch.arange(0, len(block), self.segment, device=self.device)

    def _memory_error(self, rows: int, error: Exception) -> NoMeasurement:
        needed, have = 4 * self.width * rows, self.nbytes
        return NoMeasurement(
            f"no memory for {rows} more rows ({needed} B) of a table with {self.rows} ({have} B) on"
            f" {self.device}: {error}",
            "give the table a capacity and an eviction, gpu_bytes and host_bytes, or more ranks",
        )

    def read(self, rows: torch.Tensor) -> torch.Tensor:
        """The records of rows, [n, width]."""
        records = torch.empty(len(rows), self.width, device=self.device)
        for block, inside, at in self._split_by_block(rows):
            records[inside] = block[at]
        return records

    def write(self, rows: torch.Tensor, records: torch.Tensor) -> None:
        """Replace the records of rows, which are unique."""
        for block, inside, at in self._split_by_block(rows):
            block[at] = records[inside]

    def _split_by_block(
        self, rows: torch.Tensor
    ) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Split rows by block.

        For each block that has some of them: the block, their positions in `rows`, and their rows
        within the block.
        """
        firsts = torch.tensor(self._first, device=rows.device)
        numbers = torch.bucketize(rows.long(), firsts, right=True) - 1
        parts = []
        for number in numbers.unique().tolist():
            inside = (numbers == number).nonzero().flatten()
            parts.append((self.blocks[number], inside, rows[inside].long() - self._first[number]))
        return parts


def _unpin(slabs: list[Slab], device: torch.device) -> None:
    """Close slabs once no kernel uses them."""
    if slabs and device.type == "cuda":
        torch.cuda.synchronize(device)
    for slab in slabs:
        slab.close()
