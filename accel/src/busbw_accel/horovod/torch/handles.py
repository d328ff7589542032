"""Pending operations, by the handle numbers that scripts hold."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from busbw_accel.horovod.torch.errors import HorovodInternalError


class Handle:
    """The outcome of one operation: a result or an error."""

    def __init__(self) -> None:
        self._done = threading.Event()
        # Called just before the outcome becomes visible.
        self.before: Callable[[], None] = lambda: None
        self._result: Any = None
        self._error: Exception | None = None
        self._on_device: torch.cuda.Event | None = None

    def finish(self, result: Any, on_device: "torch.cuda.Event | None" = None) -> None:
        """Set the result. On a GPU it is valid after the event."""
        self._result, self._on_device = result, on_device
        self.before()
        self._done.set()

    def fail(self, error: Exception) -> None:
        """Set the error. No effect after `finish`."""
        if not self._done.is_set():
            self._error = error
            self.before()
            self._done.set()

    def done(self) -> bool:
        """Whether `result` would return immediately."""
        return self._done.is_set() and (self._on_device is None or self._on_device.query())

    def result(self) -> Any:
        """Wait for the result. On a GPU, the current stream of the result's device waits.

        Raises:
            HorovodInternalError: the operation failed.
        """
        self._done.wait()
        if self._error is not None:
            # A new exception each time: raising the same object again would extend its traceback.
            raise HorovodInternalError(str(self._error)) from self._error
        if self._on_device is not None:
            stream = torch.cuda.current_stream(self._on_device.device)
            stream.wait_event(self._on_device)
            for tensor in _tensors(self._result):
                if tensor.is_cuda:  # received splits may be on the CPU
                    tensor.record_stream(stream)  # it may have been allocated on another stream
        return self._result


def _tensors(result: Any) -> Iterator[torch.Tensor]:
    """The tensors of a result: one, or nested lists and tuples."""
    if isinstance(result, torch.Tensor):
        yield result
    else:
        for part in result:
            yield from _tensors(part)


class Handles:
    """Handles by number.

    Numbers increase by one for each operation, including failed ones. Generated names contain them,
    and must match on all ranks.
    """

    def __init__(self) -> None:
        self._count = 0
        self._handles: dict[int, Handle] = {}

    def number(self) -> int:
        self._count += 1
        return self._count - 1

    @property
    def count(self) -> int:
        """The number of handle numbers used so far."""
        return self._count

    def advance(self, count: int) -> None:
        """Continue from this number if it is larger."""
        self._count = max(self._count, count)

    def hold(self, number: int, handle: Handle) -> int:
        self._handles[number] = handle
        return number

    def reset(self) -> None:
        """Start at 0 again, at `init` and `shutdown`."""
        self._count = 0
        self._handles.clear()

    def poll(self, number: int) -> bool:
        """Whether `synchronize` would return immediately. True for an unknown number."""
        handle = self._handles.get(number)
        return handle is None or handle.done()

    def synchronize(self, number: int) -> Any:
        """The operation's result. None for an unknown number or at a second call."""
        handle = self._handles.pop(number, None)
        return None if handle is None else handle.result()
