"""A process on another host that answers requests: JSON lines over its stdin and stdout, through
the launch agent.

The process ends when its stdin closes, so nothing remains of a driver that was killed. Requests and
answers carry a number, so that several can be open at once. Lines of stdout that are no answers,
such as greetings of a login shell, are ignored.
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import BinaryIO, TypeVar

import msgspec

from busbw.core.errors import BusbwError, NoMeasurement
from busbw.launch import remote

T = TypeVar("T")
END_S = 3.0  # for a process whose stdin was closed
_MOST_BYTES = 16 << 20  # of an answer


class _Request(msgspec.Struct):
    id: int
    ask: msgspec.Raw


class _Reply(msgspec.Struct, omit_defaults=True):
    id: int
    ok: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None


class NodeLost(NoMeasurement):
    """The process has ended, or does not answer."""


class NodeFailed(NoMeasurement):
    """The process answered that it could not do what was asked."""


class Node:
    """A process started on `host` with the words `words`.

    NodeLost if the agent cannot be started; `close` ends the process.
    """

    def __init__(self, host: str, words: Sequence[str]) -> None:
        self.host = host
        line = remote.command(host, words)
        try:
            self._errors = os.fdopen(os.memfd_create("errors"), "w+b")
        except OSError as error:
            raise NodeLost(
                f"{host}: {error.strerror}", "raise the limit of open files, `ulimit -n`"
            ) from error
        try:
            # A session of its own: Ctrl-C reaches the driver alone, which then ends its nodes.
            self._process = subprocess.Popen(
                line,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise NodeLost(f"{host}: {line[0]}: {error.strerror}", "is ssh installed?") from error
        self._lock = threading.Lock()
        self._open: dict[int, Future[bytes]] = {}
        self._last = 0
        self.lost: NodeLost | None = None  # why the process cannot be asked any more
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def begin(self, request: msgspec.Struct) -> Future[bytes]:
        """Send a request; the future gets the JSON of the answer, NodeFailed or NodeLost."""
        future: Future[bytes] = Future()
        with self._lock:
            if self.lost is not None:
                raise self.lost
            self._last += 1
            self._open[self._last] = future
            line = (
                msgspec.json.encode(_Request(self._last, msgspec.Raw(msgspec.json.encode(request))))
                + b"\n"
            )
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):  # its end is noticed by the reader
                self._process.stdin.write(line)
                self._process.stdin.flush()
        return future

    def result(self, future: Future[bytes], kind: type[T], limit_s: float) -> T:
        """The answer to a request.

        NodeFailed; NodeLost also after `limit_s` seconds, and then the process is not asked again.
        """
        try:
            return msgspec.json.decode(future.result(limit_s), type=kind)
        except TimeoutError as error:
            self.lost = NodeLost(
                f"{self.host}: no answer within {limit_s:g} s",
                "is the host overloaded? allow more with --limit",
            )
            raise self.lost from error
        except ValueError as error:
            raise NodeFailed(
                f"{self.host}: unexpected answer: {error}",
                "install the same version of busbw on all hosts",
            ) from error

    def ask(self, request: msgspec.Struct, kind: type[T], limit_s: float) -> T:
        """Send a request and wait for its answer, as `result` does."""
        return self.result(self.begin(request), kind, limit_s)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            while line := answers.readline(_MOST_BYTES):
                with contextlib.suppress(ValueError):
                    self._settle(msgspec.json.decode(line, type=_Reply))
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        self._give_up()

    def _settle(self, reply: _Reply) -> None:
        with self._lock:
            future = self._open.pop(reply.id, None)
        if future is None:
            return
        if reply.error is not None:
            future.set_exception(NodeFailed(f"{self.host}: {reply.error}"))
        else:
            future.set_result(bytes(reply.ok))

    def _give_up(self) -> None:
        with self._lock:
            code, said = self._process.poll(), self._said()
            why = f"exit code {code}" if code else "its process ended"
            lost = NodeLost(
                f"{self.host}: {why}{f': {said}' if said else ''}",
                "does `ssh HOST true` work without a password?",
            )
            self.lost = self.lost or lost
            left, self._open = list(self._open.values()), {}
        for future in left:
            future.set_exception(lost)

    def _said(self) -> str:
        """The last line of stderr."""
        with contextlib.suppress(ValueError):  # closed meanwhile
            lines = remote.last_bytes(self._errors).splitlines()
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""

    def close(self) -> None:
        """End the process: close its stdin, then kill it if it has not ended after END_S
        seconds.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            remote.kill(self._process)
        self._reader.join(END_S)  # a process that the agent left behind may keep the pipe open
        self._errors.close()


def serve(handle: Callable[[bytes], msgspec.Struct], requests: BinaryIO, answers: BinaryIO) -> None:
    """In the process: answer every line of `requests`, each in a thread, until the end of the
    input.

    `handle` gets the JSON of a request. Its BusbwError or OSError becomes the answer; other
    exceptions too, with their type.
    """
    lock = threading.Lock()

    def work(request: _Request) -> None:
        try:
            reply = _Reply(request.id, msgspec.Raw(msgspec.json.encode(handle(bytes(request.ask)))))
        except (BusbwError, OSError) as error:
            reply = _Reply(request.id, error=str(error))
        except Exception as error:  # noqa: BLE001 - the driver reports it
            reply = _Reply(request.id, error=f"{type(error).__name__}: {error}")
        with lock:
            answers.write(msgspec.json.encode(reply) + b"\n")
            answers.flush()

    for line in requests:
        try:
            request = msgspec.json.decode(line, type=_Request)
        except msgspec.MsgspecError as error:
            sys.stderr.write(f"not a request: {error}\n")
            continue
        threading.Thread(target=work, args=(request,), daemon=True).start()
