"""The reader of one host, for a watch of several: `python -m busbw.job.live.node`.

It answers each request on its stdin with what is new, and ends when stdin closes.
"""

import os
import signal
import sys
from pathlib import Path

import msgspec

from busbw.job.live.files import HostFiles, HostNews
from busbw.launch.node import serve

IDLE_S = 300  # without a request: a host that lost its power closes no connection


class Look(msgspec.Struct, omit_defaults=True):
    """A request: what is new in `folder`; `wanted` are ranks of other hosts to read too, `turn` is
    when to read the use anew (`busbw.job.live.files`).
    """

    folder: str
    wanted: list[int] = []
    turn: int | None = None


class FolderService:
    """Answers the requests, which come one at a time."""

    def __init__(self) -> None:
        self._files: HostFiles | None = None

    def handle(self, message: bytes) -> HostNews:
        """The answer to a request, given as JSON."""
        signal.alarm(IDLE_S)
        request = msgspec.json.decode(message, type=Look)
        if self._files is None:
            self._files = HostFiles(Path(request.folder))
        return self._files.look(request.wanted, request.turn)


def main() -> None:
    """Answer the requests until stdin closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.alarm(IDLE_S)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # only answers may go to stdout
    serve(FolderService().handle, sys.stdin.buffer, answers)
    os._exit(0)  # does not wait for a look that hangs


if __name__ == "__main__":
    main()
