"""Running a launcher: both its streams read at once, a limit on its silence, and no process left behind on this host."""

import _thread
import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import FrameType

from busbw.core.errors import BusbwError, NoMeasurement, TimedOut
from busbw.host.process import die_with_parent
from busbw.launch.cleanup import KILL_LIMIT_S, MARKER, Cleanup
from busbw.launch.failures import explain

__all__ = ["explain", "run", "terminable", "undisturbed"]

TERM_LIMIT_S = 5.0  # for mpirun to end the ranks of other hosts, which nobody else can
GRACE_S = 2.0  # of these, whoever presses Ctrl-C again; mpirun takes 0.1 to 0.3 s where its ranks are alive
END_LIMIT_S = 30.0  # for the launcher to end after its last word
DRAIN_LIMIT_S = 1.0  # for what a process that outlived the launcher still holds open
_POLL_S = 0.2
_AGAIN_S = 0.01
_CHUNK = 1 << 16

Take = Callable[[bytes], None]
Handler = Callable[[int, FrameType | None], None]
Verdict = Callable[[], BusbwError | None]


class _Lines:
    """Cuts one stream into lines without their newline; those that are no event go to `other` where there is one."""

    def __init__(self, take: Take, other: Take | None = None) -> None:
        self._take, self._other, self._rest = take, other, b""
        self.count = 0  # lines taken so far
        self.ending = False  # the job is being ended: what a callback raises now must not cut that short

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._hand(line)

    def end(self) -> None:
        rest, self._rest = self._rest, b""
        if rest:
            self._hand(rest)

    def _hand(self, line: bytes) -> None:
        event = self._other is None or line.startswith(b"{")
        self.count += event
        with contextlib.suppress(Exception) if self.ending else contextlib.nullcontext():
            (self._take if event or self._other is None else self._other)(line)


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    on_line: Take,
    on_talk: Take,
    limit_s: float,
    hosts: Sequence[str] = (),
    *,
    verdict: Verdict = lambda: None,
    heard: Callable[[], bool] = bool,
    queued: Callable[[], bool] = bool,
) -> int:
    """Run the launcher `argv` to its end; its exit code, or -N where signal N ended it.

    `verdict` is asked several times a second: an error that it returns ends the job. While `queued` holds, the time of `limit_s` has
    not begun; `heard` ends it as a line for `on_line` does.

    `on_line` gets each line of stdout that is a JSON object, `on_talk` all others (mpirun 5 reports lost daemons on stdout) and those of
    stderr, without the newline and in this thread. NoMeasurement when it cannot be started, or `on_line` had nothing within `limit_s`
    seconds (0: no limit). Then, and when this process is interrupted, told to terminate, or a callback raises, the launcher is ended
    first and every process of the job on this host with it.
    """
    marker = uuid.uuid4().hex
    try:
        process = subprocess.Popen(
            list(argv),
            env={**env, MARKER: marker},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
            preexec_fn=partial(die_with_parent, signal.SIGTERM),  # it then ends its ranks on all hosts
        )
    except OSError as error:
        raise NoMeasurement(f"{argv[0]} cannot be run: {error.strerror}", "install it, or name another launcher") from error
    lines, talk, cleanup = _Lines(on_line, on_talk), _Lines(on_talk), Cleanup(marker)
    with terminable():
        try:
            with _pump(process, lines, talk) as pump:
                if not pump(limit_s or None, verdict=verdict, until=lambda: lines.count > 0 or heard(), queued=queued):
                    raise _silent(argv[0], limit_s, hosts)
                pump(None, verdict=verdict)
                lines.end()
                talk.end()
                status = _ended(process)
        except BaseException:
            _stop(process, lines, talk, cleanup)
            raise
        finally:
            with undisturbed():
                cleanup.sweep()
                for stream in (process.stdout, process.stderr):
                    if stream is not None:
                        stream.close()
    return status


Pump = Callable[..., bool]


@contextlib.contextmanager
def _pump(process: subprocess.Popen[bytes], lines: _Lines, talk: _Lines) -> Iterator[Pump]:
    """A function that reads both streams until they end, or the process has; False where `limit_s` passed before."""
    assert process.stdout is not None
    assert process.stderr is not None
    with selectors.DefaultSelector() as selector:
        for stream, sink in ((process.stdout, lines), (process.stderr, talk)):
            if not stream.closed:
                selector.register(stream, selectors.EVENT_READ, sink)

        def pump(
            limit_s: float | None,
            *,
            verdict: Verdict = lambda: None,
            until: Callable[[], bool] = bool,
            queued: Callable[[], bool] = bool,
        ) -> bool:
            deadline = time.monotonic() + limit_s if limit_s is not None else None
            ended: float | None = None
            while selector.get_map() and not until():
                _read(selector)
                now = time.monotonic()
                if limit_s is not None and queued():
                    deadline = now + limit_s
                if process.poll() is not None:
                    ended = ended or now
                    if now - ended > DRAIN_LIMIT_S:
                        break
                elif deadline is not None and now > deadline:
                    return until()  # it may have come late, to a process that was stopped
                elif error := verdict():
                    raise error
            return True

        yield pump


def _read(selector: selectors.BaseSelector) -> None:
    """Hand on what both streams have to say now, or within a moment."""
    for key, _ in selector.select(_POLL_S):
        data = os.read(key.fd, _CHUNK)
        if data:
            key.data.feed(data)
        else:
            selector.unregister(key.fileobj)


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Its exit code, once both its streams have ended."""
    try:
        return process.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise TimedOut(f"the launcher closed its output and did not end within {END_LIMIT_S:g} s", "ps -ef | grep mpirun") from error


def _silent(launcher: str, limit_s: float, hosts: Sequence[str]) -> NoMeasurement:
    if not hosts:
        return NoMeasurement(f"no rank was heard within {limit_s:g} s of starting {launcher}", "run the line that --dry-run prints by hand")
    probe = f"for h in {' '.join(hosts)}; do ssh -o BatchMode=yes -o ConnectTimeout=5 $h hostname; done"
    return NoMeasurement(
        f"no rank was heard within {limit_s:g} s of starting {launcher} on {', '.join(hosts)}: "
        "a host does not answer, a firewall blocks its way back, or the interface is wrong",
        f"{probe}   (if all answer: --ifname with the network they share, like 10.1.0.0/16)",
    )


def _stop(process: subprocess.Popen[bytes], lines: _Lines, talk: _Lines, cleanup: Cleanup) -> None:
    """SIGTERM and time to pass it on, what is still said read meanwhile; then SIGKILL.

    A second interrupt skips the waiting, but not the moment in which a launcher that is well ends its ranks and removes what they shared.
    """
    lines.ending = talk.ending = True
    with contextlib.suppress(BaseException), _pump(process, lines, talk) as pump:
        with undisturbed():
            cleanup.note()
            _signal_group(process, signal.SIGTERM)
            pump(GRACE_S)
        if pump(TERM_LIMIT_S - GRACE_S):
            process.wait(TERM_LIMIT_S)
    _signal_group(process, signal.SIGKILL)
    with contextlib.suppress(BaseException):
        process.wait(KILL_LIMIT_S)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # The group is the launcher's own (start_new_session); it may live on after its leader.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP end this process by an exception while a job runs, so that the job is ended too.

    The first of them alone: those that follow find the end under way. Inside another `terminable` it is the other that holds.
    """
    if isinstance(signal.getsignal(signal.SIGTERM), _Leave):
        yield
        return
    own = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a shell's background job ignores it
    with _handled(_Leave(), signal.SIGTERM, signal.SIGHUP), _handled(_interrupt, *([signal.SIGINT] if own else [])):
        yield


def undisturbed() -> contextlib.AbstractContextManager[None]:
    """Interrupts and requests to end are not heard: for the moment that it takes to save and to clean up."""
    return _handled(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Leave:
    """Ends this process by an exception, once."""

    def __init__(self) -> None:
        self._told = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._told:
            return
        if _in_finalizer(frame):
            _thread.start_new_thread(_once_more, (number,))
            return
        self._told = True
        raise SystemExit(128 + number)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """As Python's own handler of SIGINT, each time."""
    if _in_finalizer(frame):
        _thread.start_new_thread(_once_more, (number,))
        return
    raise KeyboardInterrupt


def _in_finalizer(frame: FrameType | None) -> bool:
    """Whether the main thread is in a __del__: what is raised there is dropped, and nobody would hear of it."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def _once_more(number: int) -> None:
    # By the lowest means: the handler may have come in the middle of `threading`.
    time.sleep(_AGAIN_S)
    signal.pthread_kill(threading.main_thread().ident or 0, number)


@contextlib.contextmanager
def _handled(handler: Handler | signal.Handlers, *numbers: signal.Signals) -> Iterator[None]:
    """These signals have this handler; outside the main thread, where Python takes none, they keep theirs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
