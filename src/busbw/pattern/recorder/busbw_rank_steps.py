"""The steps of a training by its optimizer, and how long its rank is blocked in calls on CPUs."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

import busbw_rank_now  # type: ignore[import-not-found]  # from this folder

NS_PER_US = 1e3


class CallWaits:
    """How long the program was blocked in calls on CPUs. On GPUs the host does not wait for a call.

    Every call of torch.distributed that waits for its result ends with `Work.wait`. DDP times its
    exchange of gradients itself, but not its broadcast of buffers: `timed` is for that.
    """

    def __init__(self, on_failure: Callable[[], None] = lambda: None) -> None:
        """`on_failure` is called once, when a call raises an error."""
        self._on_failure: Callable[[], None] | None = on_failure
        self._total_ns = 0
        self._is_wrapped = False

    def start(self) -> None:
        """Time the calls from now on, once torch.distributed is imported."""
        if self._is_wrapped:
            return
        import torch

        work: Any = torch._C._distributed_c10d.Work
        work.wait = self.timed(work.wait)
        self._is_wrapped = True

    def timed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, whose calls are timed, and the first failure of which is told."""
        watched = self._noting_failure(original)

        @functools.wraps(original)
        def call(*args: Any, **options: Any) -> Any:
            start_ns = time.perf_counter_ns()
            try:
                return watched(*args, **options)
            finally:
                self._total_ns += time.perf_counter_ns() - start_ns

        return call

    def watch_backward(self, module: Any) -> None:
        """Of torch.autograd: DDP calls in backward, where an error passes no `Work.wait`."""
        backward = getattr(module, "_engine_run_backward", None)
        if backward:
            module._engine_run_backward = self._noting_failure(backward)

    def _noting_failure(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **options: Any) -> Any:
            try:
                return original(*args, **options)
            except RuntimeError:
                self._note_failure()
                raise

        return call

    def _note_failure(self) -> None:
        on_failure, self._on_failure = self._on_failure, None
        with contextlib.suppress(Exception):
            if on_failure:
                on_failure()

    def total_us(self) -> float | None:
        """Since the start; None if the program uses GPUs."""
        if not self._is_wrapped or sys.modules["torch"].cuda.is_initialized():
            return None
        return self._total_ns / NS_PER_US


class StepClock:
    """When steps begin, and how long each was blocked in calls, by number of the step."""

    def __init__(self, calls: CallWaits) -> None:
        self.starts: list[int] = []
        self.call_waits_us: dict[int, float] = {}
        self._calls = calls
        self._total_us: float | None = None

    def begin(self) -> None:
        """A step begins."""
        total_us = self._calls.total_us()
        if self.starts and total_us is not None and self._total_us is not None:
            self.call_waits_us[len(self.starts) - 1] = total_us - self._total_us
        self._total_us = total_us
        self.starts.append(time.perf_counter_ns())


class OptimizerSteps:
    """The steps of the first optimizer: of a training without DistributedDataParallel."""

    def __init__(self, calls: CallWaits) -> None:
        self._clock = StepClock(calls)
        self._optimizer: Any = None

    def note(self, optimizer: Any, *_: object) -> None:
        """After a step of any optimizer."""
        first = self._optimizer and self._optimizer()
        if first is None:
            self._optimizer = weakref.ref(optimizer)
        elif first is not optimizer:
            return
        self._clock.begin()

    def last(self) -> dict[str, Any]:
        """The last steps, in the form of `.rank_N.now`."""
        return dict(busbw_rank_now.last_steps(self._clock.starts, self._clock.call_waits_us))
