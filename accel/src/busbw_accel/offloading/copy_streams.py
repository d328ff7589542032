"""Copies between a GPU and its host, in separate streams. On a CPU they are plain copies."""

from collections import deque
from dataclasses import dataclass
from typing import Any

import torch

IN_FLIGHT = 1 << 30  # bytes: several layers, so that the GPU always has work


@dataclass(slots=True)
class CopyTraffic:
    """Bytes and seconds of the copies in one direction.

    They do not overlap, so their seconds add up.
    """

    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in the work of a stream: a CUDA event; None on a CPU."""

    event: Any


class StartedCopy:
    """A copy that was started."""

    def __init__(self, begun: Any, ended: Any) -> None:
        """`begun`, `ended`: CUDA events around the copy; None on a CPU, where it has ended."""
        self._begun, self._ended = begun, ended

    def done(self) -> bool:
        return self._ended is None or bool(self._ended.query())

    def wait(self) -> None:
        if self._ended is not None:
            self._ended.synchronize()

    def hold_stream(self) -> None:
        """Make later work of the current stream begin after the copy."""
        if self._ended is not None:
            torch.cuda.current_stream().wait_event(self._ended)

    def seconds(self) -> float:
        """The duration of the copy, which must have ended."""
        return 0.0 if self._ended is None else float(self._begun.elapsed_time(self._ended)) / 1e3


class Lane:
    """Copies in one direction, one after the other."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.traffic = CopyTraffic()
        self._in_flight: deque[tuple[StartedCopy, int]] = deque()

    def throttle(self) -> None:
        """Block this thread while more than IN_FLIGHT bytes wait to be copied.

        A program that is far ahead of the GPU would fill its memory.
        """
        while self._in_flight and self._in_flight[0][0].done():
            self._in_flight.popleft()
        while sum(size for _, size in self._in_flight) > IN_FLIGHT:
            copied, _ = self._in_flight.popleft()
            copied.wait()

    def after_current(self) -> None:
        """Make later copies begin after the work of the current stream so far."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self.device))

    def moment(self) -> Moment:
        """The end of the work of the current stream so far."""
        if self._stream is None:
            return Moment(None)
        return Moment(torch.cuda.current_stream(self.device).record_event())

    def after(self, moment: Moment) -> None:
        """Make later copies begin after a moment of another stream."""
        if self._stream is not None:
            self._stream.wait_event(moment.event)

    def wait_for_current(self) -> None:
        """Block this thread until the current stream has done its work so far.

        Does not keep a core busy.
        """
        if self._stream is not None:
            event = torch.cuda.Event(blocking=True)
            event.record(torch.cuda.current_stream(self.device))
            event.synchronize()

    def finish(self) -> None:
        """Block this thread until all copies so far have ended."""
        if self._stream is not None:
            self._stream.synchronize()

    def hold_current(self) -> None:
        """Make later work of the current stream begin after all copies so far."""
        if self._stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self._stream)

    def copy(self, to: torch.Tensor, source: torch.Tensor) -> StartedCopy:
        """Start a copy. GPU memory of `source` is not reused before its end."""
        self.traffic.bytes += to.nbytes
        if self._stream is None:
            to.copy_(source)
            return StartedCopy(None, None)
        begun, ended = (torch.cuda.Event(enable_timing=True, blocking=True) for _ in range(2))
        with torch.cuda.stream(self._stream):
            begun.record()
            to.copy_(source, non_blocking=True)
            ended.record()
        copied = StartedCopy(begun, ended)
        if source.is_cuda:
            source.record_stream(self._stream)
            self._in_flight.append((copied, to.nbytes))
        return copied

    def measured(self, copied: StartedCopy) -> None:
        """Count the duration of a copy that has ended."""
        self.traffic.seconds += copied.seconds()
