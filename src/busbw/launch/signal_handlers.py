"""Handlers of the signals that end or interrupt a run."""

import _thread
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import TypeVar

_AGAIN_S = 0.01  # until a deferred signal is sent again
_DEFERRED_S = 1.0  # for what must not be interrupted; it may hang, as in a pipe that nobody reads

F = TypeVar("F", bound=Callable[..., object])
Handler = Callable[[int, FrameType | None], None]

_DEFERRING: set[CodeType] = set()


def defers_signals(function: F) -> F:
    """A decorator for what takes measured rows: a run is interrupted before it or after it."""
    _DEFERRING.add(function.__code__)
    return function


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """While a job runs, the first SIGTERM or SIGHUP raises SystemExit, which ends the job too.

    Later ones are ignored, and so is one that comes when the job has ended. A signal that was
    ignored stays so: nohup ignores SIGHUP, and a shell ignores SIGINT in its background jobs. Has
    no effect inside another `terminable`.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    if any(isinstance(handler, _Terminate) for handler in before.values()):
        yield
        return
    terminating = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    interrupting = []
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        interrupting = [signal.SIGINT]
    terminate = _Terminate()
    with _handling(terminate, *terminating), _handling(_Interrupt(), *interrupting):
        yield
        # A signal while the handlers are put back would end the program without a message.
        terminate.over = True


def signals_ignored() -> contextlib.AbstractContextManager[None]:
    """Ignore SIGINT, SIGTERM and SIGHUP for the short time that saving and cleaning up take."""
    return _handling(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def interrupt_deferred() -> Iterator[list[int]]:
    """SIGINT adds to the list, in place of raising KeyboardInterrupt; unless it is ignored.

    For work with threads: raised inside of Python's own queues and events, KeyboardInterrupt may
    leave their locks held, and then the process waits for its threads forever.
    """
    interrupts: list[int] = []
    numbers = [] if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else [signal.SIGINT]
    with _handling(lambda number, _: interrupts.append(number), *numbers):
        yield interrupts


class _Deferral:
    """Sends a signal again a little later if it came when it must not interrupt."""

    def __init__(self) -> None:
        self._since: float | None = None

    def defers(self, number: int, frame: FrameType | None) -> bool:
        """Whether signal `number` waits for a function that `frame` is in."""
        now = time.monotonic()
        self._since = self._since or now
        if not _must_not_interrupt(frame, expired=now - self._since > _DEFERRED_S):
            self._since = None
            return False
        _thread.start_new_thread(_send_again, (number,))
        return True


class _Terminate(_Deferral):
    """A signal handler that raises SystemExit once, unless the job is `over`."""

    def __init__(self) -> None:
        super().__init__()
        self.over = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.over or self.defers(number, frame):
            return
        self.over = True
        raise SystemExit(128 + number)


class _Interrupt(_Deferral):
    """A signal handler that raises KeyboardInterrupt, like Python's own."""

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.defers(number, frame):
            raise KeyboardInterrupt


def _must_not_interrupt(frame: FrameType | None, *, expired: bool) -> bool:
    """Whether the main thread is in a function that an exception must not leave half done."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":  # Python drops exceptions there
            return True
        if frame.f_code in _DEFERRING and not expired:
            return True
        frame = frame.f_back
    return False


def _send_again(number: int) -> None:
    # pthread_kill, because the handler may have interrupted `threading`.
    time.sleep(_AGAIN_S)
    signal.pthread_kill(threading.main_thread().ident or 0, number)


@contextlib.contextmanager
def _handling(handler: Handler | signal.Handlers, *numbers: signal.Signals) -> Iterator[None]:
    """Install a handler for the signals `numbers`.

    Does nothing outside the main thread, where Python allows no handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
