"""The bytes that a worker has sent."""

import threading
from collections import deque

import torch

from busbw_accel.communicator import Bytes

# Exchanges whose number of bytes is not read, so that the host does not wait for a GPU.
UNREAD = 256


class Traffic:
    """Bytes that this rank has sent, and the number of buckets.

    Bytes are those of a ring where the library chooses the algorithm.
    """

    def __init__(self) -> None:
        self.inside = 0  # bytes to the ranks of its row, in two dimensions
        self.buckets = 0
        self._across = 0
        self._lock = threading.Lock()
        # Numbers in host memory, and the events after which they are there.
        self._later: deque[tuple[torch.Tensor, torch.cuda.Event]] = deque()

    @property
    def across(self) -> int:
        """Bytes that left the host in all other exchanges. May wait for a GPU."""
        with self._lock:
            self._read(0)
            return self._across

    def add_across(self, nbytes: Bytes) -> None:
        """Count bytes that leave the host. On a GPU they are known after the current stream."""
        with self._lock:
            if isinstance(nbytes, torch.Tensor) and nbytes.is_cuda:
                number = nbytes.to("cpu", non_blocking=True)
                self._later.append(
                    (number, torch.cuda.current_stream(nbytes.device).record_event())
                )
                self._read(UNREAD)
            else:
                self._across += int(nbytes)

    def _read(self, but: int) -> None:
        """Read all numbers but so many of the last."""
        while len(self._later) > but:
            number, there = self._later.popleft()
            there.synchronize()
            self._across += int(number)
