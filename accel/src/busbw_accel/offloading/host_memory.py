"""Host memory for states: mapped and touched at once, and pinned where a GPU copies from or to it.

PyTorch's own pinned memory is not used: it rounds each block up to a power of two, and
cudaHostAlloc takes ten times as long as pinning memory that has been touched
(benchmarks/host_memory_1xh100_202611).
"""

import contextlib
import mmap
import weakref
from pathlib import Path
from typing import Any

import torch

from busbw.core.errors import NoMeasurement
from busbw_accel import host_adam
from busbw_accel.offloading.state_bytes import HOST_RESERVE

LINE = 64  # bytes; tensors start at a cache line
# Of version 2 and version 1: the files of the limit, the use, and its details.
_CGROUPS = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current", "sys/fs/cgroup/memory.stat"),
    (
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
        "sys/fs/cgroup/memory/memory.usage_in_bytes",
        "sys/fs/cgroup/memory/memory.stat",
    ),
)


def available(root: Path = Path("/")) -> int:
    """Bytes that this process can still use.

    These are the free and the reclaimable memory of the host, or of its container if that is less.
    """
    text = (root / "proc/meminfo").read_text()
    free = next(
        int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("MemAvailable:")
    )
    for limit, used, stat in _CGROUPS:
        with contextlib.suppress(OSError, ValueError):  # no such cgroup, or no limit: the word max
            lines = (root / stat).read_text().splitlines()
            reclaimable = [
                int(line.split()[1]) for line in lines if line.startswith("inactive_file ")
            ]
            unused = int((root / limit).read_text()) - int((root / used).read_text())
            free = min(free, unused + sum(reclaimable))
    return free


def usable() -> int:
    """Bytes for states: what is available, less the reserve."""
    return max(0, available() - HOST_RESERVE)


def require(needed: int, purpose: str, hint: str) -> None:
    """Raise NoMeasurement unless `needed` bytes are usable."""
    if needed > usable():
        amounts = (
            f"{needed / 1e9:.2f} GB of host memory, and {usable() / 1e9:.2f} of the available"
            f" {available() / 1e9:.2f} are usable"
        )
        raise NoMeasurement(f"{purpose} need {amounts}", hint)


class Slab:
    """One block of zeroed host memory that tensors are cut from."""

    def __init__(self, nbytes: int, *, pinned: bool) -> None:
        """Map and touch `nbytes`; with `pinned` a GPU copies from and to it without a detour.

        Raises:
            NoMeasurement: the memory cannot be mapped or pinned.
        """
        self._used = 0
        self._unpin: Any = None
        try:
            self._map = mmap.mmap(
                -1, max(nbytes, mmap.PAGESIZE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            )
        except OSError as error:
            raise NoMeasurement(
                f"{nbytes / 1e9:.1f} GB of host memory cannot be mapped: {error.strerror}",
                "ulimit -v, free -g",
            ) from error
        # Forked processes, as of a DataLoader, would keep a copy of each page that is updated.
        self._map.madvise(mmap.MADV_DONTFORK)
        with contextlib.suppress(OSError):  # a kernel without huge pages
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)
        with host_adam.torch_threads(host_adam.usable()):
            self._bytes.zero_()  # touches it
        if pinned:
            self._pin()

    def _pin(self) -> None:
        code = torch.cuda.cudart().cudaHostRegister(self._bytes.data_ptr(), self.size, 0)
        if int(code) != 0:
            amount = f"{self.size / 1e9:.1f} GB of host memory cannot be pinned"
            raise NoMeasurement(
                f"{amount}: CUDA error {int(code)} ({code})",
                "ulimit -l unlimited, or docker run --ulimit memlock=-1",
            )
        # CUDA would take memory that is unmapped and mapped again for pinned memory.
        self._unpin = weakref.finalize(self, _unpin, self._bytes)
        self._unpin.atexit = False

    def take(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """The next `count` elements as a tensor."""
        size = count * dtype.itemsize
        part = self._bytes[self._used : self._used + size].view(dtype)
        self._used += padded(size)
        return part

    @property
    def size(self) -> int:
        """Bytes of the block."""
        return int(self._bytes.numel())

    @property
    def pinned_bytes(self) -> int:
        """Bytes of the block while it is pinned, else 0."""
        return self.size if self._unpin is not None and self._unpin.alive else 0

    def close(self) -> None:
        """Unpin the block. Its memory is freed with the last tensor."""
        if self._unpin is not None:
            self._unpin()


def _unpin(memory: torch.Tensor) -> None:
    torch.cuda.cudart().cudaHostUnregister(memory.data_ptr())


def padded(size: int) -> int:
    """`size` bytes, rounded up to whole cache lines."""
    return -(-size // LINE) * LINE
