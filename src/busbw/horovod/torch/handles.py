"""Operations under way, by the numbers that scripts hold."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from busbw.horovod.torch.errors import HorovodInternalError


def _nothing() -> None:
    pass


class Handle:
    """The end of one operation: a result, or why there is none."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self.before: Callable[[], None] = _nothing  # done just before anybody can hear of the end
        self._result: Any = None
        self._error: Exception | None = None
        self._on_device: torch.cuda.Event | None = None

    def finish(self, result: Any, on_device: "torch.cuda.Event | None" = None) -> None:
        """There it is; on a GPU, when the event has come."""
        self._result, self._on_device = result, on_device
        self.before()
        self._done.set()

    def fail(self, error: Exception) -> None:
        """There is none; after `finish`, nothing happens."""
        if not self._done.is_set():
            self._error = error
            self.before()
            self._done.set()

    def done(self) -> bool:
        """Whether `result` would not wait."""
        return self._done.is_set() and (self._on_device is None or self._on_device.query())

    def result(self) -> Any:
        """Wait for it; on a GPU, its current stream waits, whichever GPU is the current one.

        Raises:
            HorovodInternalError: it failed.
        """
        self._done.wait()
        if self._error is not None:
            # A new one each time: whoever raises the same object again adds to its traceback.
            raise HorovodInternalError(str(self._error)) from self._error
        if self._on_device is not None:
            stream = torch.cuda.current_stream(self._on_device.device)
            stream.wait_event(self._on_device)
            for tensor in _tensors(self._result):
                if tensor.is_cuda:  # the splits that came may be on the CPU
                    tensor.record_stream(stream)  # it may be of another stream's memory
        return self._result


def _tensors(result: Any) -> Iterator[torch.Tensor]:
    """Of a result: one, or lists and tuples of them."""
    if isinstance(result, torch.Tensor):
        yield result
    else:
        for one in result:
            yield from _tensors(one)


class Handles:
    """Numbers go up by one for each operation, failed ones too: names that are made up contain them and have to match over ranks."""

    def __init__(self) -> None:
        self._count = 0
        self._held: dict[int, Handle] = {}

    def number(self) -> int:
        """The next number."""
        self._count += 1
        return self._count - 1

    @property
    def count(self) -> int:
        """How many there were."""
        return self._count

    def go_on_from(self, count: int) -> None:
        """As if there had been so many."""
        self._count = max(self._count, count)

    def hold(self, number: int, handle: Handle) -> int:
        """Keep a handle under its number."""
        self._held[number] = handle
        return number

    def reset(self) -> None:
        """Begin at 0 again: at `init` and `shutdown`."""
        self._count = 0
        self._held.clear()

    def poll(self, number: int) -> bool:
        """Whether `synchronize` would not wait; true for one that is not there."""
        held = self._held.get(number)
        return held is None or held.done()

    def synchronize(self, number: int) -> Any:
        """The operation's result, once; None for one that is not there."""
        held = self._held.pop(number, None)
        return held.result() if held else None
