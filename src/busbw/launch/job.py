"""Runs a launcher, and leaves no process behind on this host.

It reads both streams of the launcher, and limits the time until a rank first reports.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from busbw.core.errors import BusbwError, NoMeasurement, TimedOut
from busbw.core.host_ranges import listed
from busbw.host.process import die_with_parent
from busbw.launch.cleanup import KILL_LIMIT_S, MARKER, Cleanup, Guard, new_mark
from busbw.launch.failures import DRY_RUN_HINT
from busbw.launch.hosts import probe_command
from busbw.launch.signal_handlers import defers_signals, signals_ignored, terminable

TERM_LIMIT_S = 5.0  # for a launcher to end the ranks of other hosts, if only it can do that
# The part of TERM_LIMIT_S that a second Ctrl-C does not skip. mpirun takes 0.1 to 0.3 s if its
# ranks respond.
GRACE_S = 1.5
END_LIMIT_S = 30.0  # for the launcher to exit after closing its output
DRAIN_LIMIT_S = 1.0  # for streams that a process that outlived the launcher holds open
_POLL_S = 0.2
_CHUNK = 1 << 16

Take = Callable[[bytes], None]
Condition = Callable[[], bool]
StopReason = Callable[[], BusbwError | None]


def never() -> bool:
    """The condition that does not come true."""
    return False


class _Lines:
    """Splits a stream into lines without newline.

    With `other` only events, which are JSON objects, go to `take`, and other lines to `other`.
    """

    def __init__(self, take: Take, other: Take | None = None) -> None:
        self._take, self._other, self._partial = take, other, b""
        self.count = 0  # lines taken so far
        self.ending = False  # the job is being ended, so exceptions of callbacks are ignored

    def feed(self, data: bytes) -> None:
        self._partial += data
        while b"\n" in self._partial:
            line, _, self._partial = self._partial.partition(b"\n")
            self._pass_on(line)

    def end(self) -> None:
        line, self._partial = self._partial, b""
        if line:
            self._pass_on(line)

    def _pass_on(self, line: bytes) -> None:
        take = self._take
        if self._other is None or line.startswith(b"{"):
            self.count += 1
        else:
            take = self._other
        with contextlib.suppress(Exception) if self.ending else contextlib.nullcontext():
            take(line)


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    on_line: Take,
    on_talk: Take,
    limit_s: float,
    hosts: Sequence[str] = (),
    *,
    stop_reason: StopReason = lambda: None,
    has_reported: Condition = never,
    is_queued: Condition = never,
    why_silent: StopReason = lambda: None,
    cleanup: Cleanup | None = None,
    end_elsewhere: Callable[[], None] | None = None,
) -> int:
    """Run the launcher `argv` and return its exit code, or -N if signal N killed it.

    `on_line` gets each line of stdout that is a JSON object. `on_talk` gets all other lines of
    stdout (mpirun 5 reports lost daemons there) and of stderr. Lines have no newline and are passed
    in this thread. `stop_reason` is called several times per second; an error that it returns ends
    the job.

    NoMeasurement if the launcher cannot be started, or if no line for `on_line` arrives within
    `limit_s` seconds (0: no limit) and `has_reported` (whether a rank did in another way) is false;
    `why_silent` may know a better error. Time in which the job `is_queued` does not count.

    Before any exception leaves this function (also on SIGINT, SIGTERM or an exception of a
    callback), the launcher and all processes of the job on this host are ended, with `cleanup`, and
    those of other hosts by `end_elsewhere`.
    """
    cleanup = cleanup or Cleanup(new_mark())
    process = _start(argv, {**env, MARKER: cleanup.marker})
    cleanup.launcher = process.pid
    guard = _start_guard(cleanup)
    lines, talk = _Lines(on_line, on_talk), _Lines(on_talk)

    check = partial(_check, cleanup, stop_reason)
    with terminable():
        try:
            with _pump(process, lines, talk, cleanup.see_launcher) as pump:
                if not pump(
                    limit_s or None,
                    stop_reason=check,
                    until=lambda: lines.count > 0 or has_reported(),
                    is_queued=is_queued,
                ):
                    raise why_silent() or _silence_error(argv[0], limit_s, hosts)
                pump(None, stop_reason=check)
                lines.end()
                talk.end()
                return _exit_code(process)
        except BaseException:
            _stop(process, lines, talk, cleanup, end_elsewhere)
            raise
        finally:
            with signals_ignored():
                _clean_up(process, cleanup, guard)


def _check(cleanup: Cleanup, stop_reason: StopReason) -> BusbwError | None:
    cleanup.see_launcher()
    return stop_reason()


def _clean_up(process: subprocess.Popen[bytes], cleanup: Cleanup, guard: Guard | None) -> None:
    cleanup.kill_remaining()
    if guard is not None:
        guard.dismiss()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _start(argv: Sequence[str], env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start the launcher in a session of its own; NoMeasurement if it cannot be run."""
    try:
        return subprocess.Popen(
            list(argv),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
            preexec_fn=_prepare_launcher,
        )
    except OSError as error:
        raise NoMeasurement(
            f"{argv[0]} cannot be run: {error.strerror}", "install it, or use another launcher"
        ) from error


def _start_guard(cleanup: Cleanup) -> Guard | None:
    try:
        return Guard(cleanup)
    except OSError:  # no process or descriptor is left: the job can do without
        return None


def _prepare_launcher() -> None:
    """Have the launcher end its ranks on all hosts if this process is killed.

    It must not die of SIGPIPE when it then prints something.
    """
    die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


Pump = Callable[..., bool]


@contextlib.contextmanager
def _pump(
    process: subprocess.Popen[bytes], lines: _Lines, talk: _Lines, arrived: Callable[[], None]
) -> Iterator[Pump]:
    """A function that reads both streams until they or the process end, or until `until()`.

    It returns False after `limit_s`. `arrived` is called before data is read: whoever takes the
    data may end the process.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    with selectors.DefaultSelector() as selector:
        for stream, sink in ((process.stdout, lines), (process.stderr, talk)):
            selector.register(stream, selectors.EVENT_READ, sink)

        def pump(
            limit_s: float | None,
            *,
            stop_reason: StopReason = lambda: None,
            until: Condition = never,
            is_queued: Condition = never,
        ) -> bool:
            deadline = time.monotonic() + limit_s if limit_s is not None else None
            ended: float | None = None
            while selector.get_map() and not until():
                _read(selector, arrived)
                now = time.monotonic()
                if limit_s is not None and is_queued():
                    deadline = now + limit_s
                if process.poll() is not None:
                    ended = ended or now
                    if now - ended > DRAIN_LIMIT_S:
                        break
                    continue
                if deadline is not None and now > deadline:
                    return until()  # this process may have been stopped while a line arrived
                error = stop_reason()
                if error:
                    raise error
            return True

        yield pump


def _read(selector: selectors.BaseSelector, arrived: Callable[[], None]) -> None:
    """Wait up to _POLL_S for data of both streams, and pass it on after a call of `arrived`."""
    for key, _ in selector.select(_POLL_S):
        arrived()
        _pass_on(selector, key)


@defers_signals
def _pass_on(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    data = os.read(key.fd, _CHUNK)
    if data:
        key.data.feed(data)
    else:
        selector.unregister(key.fileobj)


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    """The exit code of the launcher, after both of its streams have ended."""
    try:
        return process.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise TimedOut(
            f"the launcher closed its output but did not exit within {END_LIMIT_S:g} s",
            "ps -ef | grep mpirun",
        ) from error


def _silence_error(launcher: str, limit_s: float, hosts: Sequence[str]) -> NoMeasurement:
    if not hosts:
        message = f"no rank reported within {limit_s:g} s of starting {launcher}"
        return NoMeasurement(message, DRY_RUN_HINT, options=["dry_run"])
    probe = probe_command(hosts)
    return NoMeasurement(
        f"no rank reported within {limit_s:g} s of starting {launcher} on {listed(hosts)}: "
        "a host does not respond, a firewall blocks connections back, or the interface is wrong",
        f"{probe}   (if all respond, give the network they share: --ifname 10.1.0.0/16)",
    )


def _stop(
    process: subprocess.Popen[bytes],
    lines: _Lines,
    talk: _Lines,
    cleanup: Cleanup,
    end_elsewhere: Callable[[], None] | None,
) -> None:
    """Send SIGTERM, read output while the launcher ends its ranks, then send SIGKILL.

    A launcher that was stopped is resumed for that. After GRACE_S, `end_elsewhere` ends what is
    left on other hosts. Without it the launcher has more time; a second interrupt skips that, but
    not GRACE_S, in which a working launcher ends its ranks and removes their shared memory.
    """
    lines.ending = talk.ending = True
    with (
        contextlib.suppress(BaseException),
        _pump(process, lines, talk, cleanup.see_launcher) as pump,
    ):
        with signals_ignored():
            cleanup.record()
            _signal_group(process, signal.SIGTERM)
            _signal_group(process, signal.SIGCONT)
            pump(GRACE_S)
            if end_elsewhere is not None:
                end_elsewhere()
        if end_elsewhere is None and pump(TERM_LIMIT_S - GRACE_S):
            process.wait(TERM_LIMIT_S)
    _signal_group(process, signal.SIGKILL)
    with contextlib.suppress(BaseException):
        process.wait(KILL_LIMIT_S)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # start_new_session made this group; it may outlive its leader.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
