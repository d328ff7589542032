"""Reads of the live machine that may never return, done in a child process that can be given up.

A driver that hangs, a dead NFS server or a stuck sysfs attribute blocks whoever reads it, often so
that not even SIGKILL ends the process. `within` runs work on a machine in a child process. A read
that does not answer in time gets a reading that says so. The work then goes on without it in
another child, which inherits every answer so far.

report = within(lambda source: examine(source), Live(), limit_s=60.0)
"""

import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import msgspec

from busbw.core.errors import BusbwError, NoMeasurement
from busbw.host.process import die_with_parent
from busbw.host.source import Reading, Source, Unavailable

FILE_S = 5.0  # for a file, a directory or a link
CALL_S = 30.0  # for a call: without persistence mode NVML takes 20 s to start on 8 GPUs
END_S = 0.2  # for a child to end that was killed or closed its connection
GRACE_S = 10.0  # after the limit, to judge what was read; nothing more is read
GIVEN_UP = "reads without an answer"  # the call that lists them
NVML = "nvml"  # first word of the calls of one library: if one hangs, the others would too

Result = TypeVar("Result")
Key = tuple[str, str]  # kind of read (read, names, link or call), and path or name


@dataclass
class _State:
    """What is known so far. Each child inherits it."""

    answers: dict[Key, Any] = field(default_factory=dict)
    silent: dict[Key, str] = field(default_factory=dict)  # with the reason
    last: str = ""  # what the last child was reading when it was given up
    over: str = ""  # why nothing more is read


@dataclass(frozen=True)
class _Begun:
    key: Key


@dataclass(frozen=True)
class _Answered:
    key: Key
    answer: Any


@dataclass(frozen=True)
class _Done:
    result: Any


@dataclass(frozen=True)
class _Raised:
    error: Exception


def within(
    work: Callable[[Source], Result],
    source: Source,
    *,
    limit_s: float,
    file_s: float = FILE_S,
    call_s: float = CALL_S,
) -> Result:
    """What `work` returns for the machine behind `source`; its exceptions are raised here.

    All reads together have `limit_s` seconds. A file has `file_s` of them and a call `call_s`, each
    at most half of the limit, so that one read which hangs leaves time for the others. The result
    and the answers are pickled. NoMeasurement if the work does not end within GRACE_S after the
    limit.
    """
    file_s, call_s = min(file_s, limit_s / 2), min(call_s, limit_s / 2)
    state, end = _State(), time.monotonic() + limit_s
    while True:
        child = _Child(work, source, state)
        try:
            last = child.follow(state, end, call_s=call_s, file_s=file_s)
        finally:
            child.give_up()
        if isinstance(last, _Done):
            result: Result = last.result
            return result
        if isinstance(last, _Raised):
            raise last.error
        if state.over and time.monotonic() > end:
            raise NoMeasurement(
                f"the readings could not be judged within {GRACE_S:.0f} s after the limit of"
                f" {limit_s:g} s",
                "busbw check --layer kernel, to begin with a part",
            )
        if time.monotonic() >= end:
            during = f" while {state.last} was read" if state.last else ""
            state.over = f"not read: the limit of {limit_s:g} s was reached{during}"
            end = time.monotonic() + GRACE_S


class _Child:
    """A forked process that does the work and reports each read before and after it."""

    def __init__(self, work: Callable[[Source], Any], source: Source, state: _State) -> None:
        self._connection, child_end = Pipe(duplex=False)
        self.pid = os.fork()
        if self.pid == 0:
            self._connection.close()
            _run(work, source, state, child_end)
        child_end.close()

    def follow(
        self, state: _State, end: float, *, call_s: float, file_s: float
    ) -> _Done | _Raised | None:
        """Take the child's reports until it ends.

        None if a read did not answer, which `state` notes, or if the time was up.
        """
        reading: Key | None = None
        while True:
            left_s = max(0.0, end - time.monotonic())
            limit_s = left_s
            if reading:
                limit_s = call_s if reading[0] == "call" else file_s
            wait_s = min(limit_s, left_s)
            try:
                message = self._connection.recv() if self._connection.poll(wait_s) else None
            except (EOFError, OSError):
                self._note_death(state, reading)
                return None
            if message is None:
                state.last = reading[1] if reading else ""
                if reading and wait_s == limit_s:
                    state.silent[reading] = f"{reading[1]}: did not answer within {limit_s:g} s"
                return None
            if isinstance(message, _Done | _Raised):
                return message
            if isinstance(message, _Answered):
                state.answers[message.key] = message.answer
            reading = message.key if isinstance(message, _Begun) else None

    def _note_death(self, state: _State, reading: Key | None) -> None:
        """Note in `state` that a read ended the child: a library may crash.

        NoMeasurement if the child was not reading anything.
        """
        self._kill()
        code = self._wait()
        ending = f"ended with exit code {code}"
        if code is None:
            ending = "was killed, and hangs in the kernel"
        elif code < 0:
            ending = f"ended with {signal.Signals(-code).name}"
        if reading is None:
            raise NoMeasurement(
                f"the process that read this machine {ending}", "dmesg | tail, to see who ended it"
            )
        state.silent[reading] = f"{reading[1]}: the process that read it {ending}"

    def _wait(self) -> int | None:
        """The child's exit code, negative for a signal; None if it does not end within END_S."""
        end = time.monotonic() + END_S
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                return None
            time.sleep(0.01)

    def give_up(self) -> None:
        """End the child and what it started.

        A child that hangs in the kernel stays until the kernel lets it go: nobody waits for that.
        """
        self._connection.close()
        if self.pid:
            self._kill()
            self._wait()

    def _kill(self) -> None:
        """Kill the child, if it has not ended, and what it started.

        No other process can have its pid yet: nobody has waited for the child.
        """
        for kill in (os.killpg, os.kill):  # it may not have its own group yet
            try:
                kill(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue


def _run(
    work: Callable[[Source], Any], source: Source, state: _State, connection: Connection
) -> None:
    """Do the work in the child, report the outcome, and exit."""
    code = 1
    try:
        die_with_parent()
        os.setsid()  # what it starts is ended with it
        _close_streams()
        connection.send_bytes(_outcome(work, _ReportingSource(source, state, connection)))
        code = 0
    finally:
        os._exit(code)


def _outcome(work: Callable[[Source], Any], source: Source) -> bytes:
    """The pickled _Done or _Raised."""
    try:
        return pickle.dumps(_Done(work(source)))
    except Exception as error:  # noqa: BLE001 - raised again in the parent
        if not isinstance(error, BusbwError):
            error.add_note(f"in the process that read this machine:\n{traceback.format_exc()}")
        return _raised(error)


def _raised(error: Exception) -> bytes:
    """The pickled _Raised.

    An exception that cannot be read again becomes another one that names it.
    """
    try:
        data = pickle.dumps(_Raised(error))
        pickle.loads(data)
    except Exception:  # noqa: BLE001 - whatever its class raises
        other = RuntimeError(f"{type(error).__name__}: {error}")
        other.__notes__ = getattr(error, "__notes__", [])
        return pickle.dumps(_Raised(other))
    return data


def _close_streams() -> None:
    """Close the standard streams.

    Whoever reads the parent's output to its end must not wait for a child that hangs.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    os.close(null)


class _ReportingSource:
    """A Source that reports what it reads.

    It answers from what is known, and refuses reads that did not answer.
    """

    def __init__(self, source: Source, state: _State, connection: Connection) -> None:
        self._source, self._state, self._connection = source, state, connection

    def read(self, path: str) -> Reading:
        refusal = self._refusal("read", path)
        if refusal:
            return Reading(None, refusal)
        reading: Reading = self._ask(("read", path), lambda: self._source.read(path))
        return reading

    def names(self, path: str) -> tuple[str, ...]:
        """Sorted names in a directory; empty for one that does not answer."""
        if self._refusal("names", path):
            return ()
        names: tuple[str, ...] = self._ask(("names", path), lambda: self._source.names(path))
        return names

    def link(self, path: str) -> str | None:
        """Target of a symbolic link; None for one that does not answer."""
        if self._refusal("link", path):
            return None
        target: str | None = self._ask(("link", path), lambda: self._source.link(path))
        return target

    def call(self, name: str, live: Callable[[], str]) -> Reading:
        if name == GIVEN_UP:
            unread = GivenUp(sorted(self._state.silent.values()), self._state.over)
            return Reading(msgspec.json.encode(unread))
        refusal = self._refusal("call", name)
        if refusal:
            return Reading(None, refusal)
        reading: Reading = self._ask(("call", name), lambda: self._source.call(name, live))
        return reading

    def _ask(self, key: Key, read: Callable[[], Any]) -> Any:
        if key not in self._state.answers:
            self._connection.send(_Begun(key))
            self._state.answers[key] = read()
            self._connection.send(_Answered(key, self._state.answers[key]))
        return self._state.answers[key]

    def _refusal(self, kind: str, name: str) -> str:
        """Why `name` is not read, or not read again; '' if it may be."""
        key = (kind, name)
        if key in self._state.answers:
            return ""
        silent = self._state.silent.get(key, "")
        return silent or self._state.over or self._refusal_by_relation(key)

    def _refusal_by_relation(self, key: Key) -> str:
        """Why a read is refused after another one of the same kernel object or library.

        '' unless that one did not answer.
        """
        for silent, reason in self._state.silent.items():
            if _would_hang_too(key, silent):
                return f"{key[1]}: not read, since {reason}"
        return ""


def _would_hang_too(key: Key, silent: Key) -> bool:
    """Calls of NVML hang together, and so do the attributes in one folder of sysfs."""
    if "call" in (key[0], silent[0]):
        return key[0] == silent[0] and key[1].startswith(NVML) and silent[1].startswith(NVML)
    folder = silent[1].rpartition("/")[0]
    return folder.startswith("/sys/") and key[1].rpartition("/")[0] == folder


class GivenUp(msgspec.Struct, frozen=True):
    """Why each of the reads in `silent` has no answer, and why reading ended early.

    `over` is '' if everything was read.
    """

    silent: list[str] = []
    over: str = ""


def given_up(source: Source) -> GivenUp | None:
    """What a limit left unread; None from a source that reads without a limit."""
    reading = source.call(GIVEN_UP, _unlimited)
    return None if reading.data is None else msgspec.json.decode(reading.data, type=GivenUp)


def _unlimited() -> str:
    raise Unavailable("the reads had no limit")
