"""One command on all hosts of a lab at the same time, with what it prints line by line."""

import codecs
import contextlib
import io
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from busbw.host.process import die_with_parent
from busbw.lab.host_exec import enter, environment
from busbw.lab.types import Lab

SIGNALLED = 128  # and the number of the signal: the exit code that a shell gives
GRACE_S = 5.0  # after Ctrl-C
LAST_LINES_S = 2.0  # what a command left running may hold its output open
_POLL_S = 0.1
_CHUNK = 1 << 16
Write = Callable[[str], None]


@dataclass(slots=True)
class _Stream:
    """One output of one host."""

    host: str
    write: Write
    decoder: io.IncrementalNewlineDecoder
    rest: str = ""

    def feed(self, data: bytes) -> None:
        """Write the lines that `data` completes.

        Without data the stream has ended, and so has its last line.
        """
        *lines, self.rest = (self.rest + self.decoder.decode(data, final=not data)).split("\n")
        if self.rest and not data:
            lines.append(self.rest)
        if lines:
            self.write("\n".join(f"{self.host}: {line.rstrip()}" for line in lines))


def run(lab: Lab, line: Sequence[str], environ: Mapping[str, str], out: Write, err: Write) -> int:
    """Run `line` on every host; `out` and `err` get lines that begin with the host's name.

    The largest exit code.

    OSError if a program that enters a host is missing. After Ctrl-C, which a terminal also sends to
    the commands, they have GRACE_S to end.
    """
    with contextlib.ExitStack() as undo, selectors.DefaultSelector() as selector:
        running = []
        for host in lab.hosts:
            command = subprocess.Popen(
                enter(lab, host, *line),
                env=environment(lab, host, environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                preexec_fn=die_with_parent,
            )
            process = undo.enter_context(command)
            undo.callback(process.kill)
            running.append(process)
            for stream, write in _outputs(process, out, err):
                selector.register(
                    stream, selectors.EVENT_READ, _Stream(host.name, write, _decoder())
                )
        try:
            _copy(selector, running, None)
        except KeyboardInterrupt:
            _copy(selector, running, GRACE_S)
            raise
        return max(
            SIGNALLED - code if code < 0 else code
            for code in (process.wait() for process in running)
        )


def _outputs(
    process: "subprocess.Popen[bytes]", out: Write, err: Write
) -> Iterator[tuple[IO[bytes], Write]]:
    assert process.stdout and process.stderr
    yield process.stdout, out
    yield process.stderr, err


def _decoder() -> io.IncrementalNewlineDecoder:
    return io.IncrementalNewlineDecoder(
        codecs.getincrementaldecoder("utf-8")("replace"), translate=True
    )


def _copy(
    selector: selectors.BaseSelector,
    running: Sequence["subprocess.Popen[bytes]"],
    limit_s: float | None,
) -> None:
    """Pass on what the commands print until they have ended, or for at most `limit_s`."""
    start, ended = time.monotonic(), None
    while selector.get_map():
        for key, _ in selector.select(_POLL_S):
            data = os.read(key.fd, _CHUNK)
            key.data.feed(data)
            if not data:
                selector.unregister(key.fileobj)
        now = time.monotonic()
        if all(process.poll() is not None for process in running):
            ended = ended or now
        if (ended and now - ended > LAST_LINES_S) or (
            limit_s is not None and now - start > limit_s
        ):
            return
