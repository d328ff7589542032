"""A process on another host that answers requests.

Requests and answers are JSON lines over its stdin and stdout, through the launch agent. They carry
a number, so that several can be open at once. Lines of stdout that are no answers, such as
greetings of a login shell, are ignored. The process ends when its stdin closes, so nothing remains
of a driver that was killed.
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
_ANSWER_BYTES = 16 << 20  # at most


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


class RemoteNode:
    """A process on `host`, started with the command line `words`.

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
            # A session of its own: Ctrl-C reaches only the driver, which then ends its nodes.
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
            body = msgspec.Raw(msgspec.json.encode(request))
            line = msgspec.json.encode(_Request(self._last, body))
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):  # the reader notices if the process has ended
                self._process.stdin.write(line + b"\n")
                self._process.stdin.flush()
        return future

    def result(self, future: Future[bytes], kind: type[T], limit_s: float) -> T:
        """The answer to a request, of the type `kind`.

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
            while line := answers.readline(_ANSWER_BYTES):
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
            code, last_line = self._process.poll(), self._last_error_line()
            reason = f"exit code {code}" if code else "its process ended"
            if last_line:
                reason += f": {last_line}"
            lost = NodeLost(
                f"{self.host}: {reason}", "does `ssh HOST true` work without a password?"
            )
            self.lost = self.lost or lost
            unanswered, self._open = list(self._open.values()), {}
        for future in unanswered:
            future.set_exception(lost)

    def _last_error_line(self) -> str:
        """The last line of stderr."""
        with contextlib.suppress(ValueError):  # closed meanwhile
            lines = remote.last_bytes(self._errors).splitlines()
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""

    def close(self) -> None:
        """Close the process's stdin, and kill it if it has not ended after END_S seconds."""
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
    """In the process: answer every line of `requests`, each in a thread, until their end.

    `handle` gets the JSON of a request. Its BusbwError or OSError becomes the answer; other
    exceptions too, with their type.
    """
    lock = threading.Lock()

    def work(request: _Request) -> None:
        try:
            answer = handle(bytes(request.ask))
            reply = _Reply(request.id, msgspec.Raw(msgspec.json.encode(answer)))
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
