"""stdout is the answer, stderr the talk: how both are written, and what happens when nobody reads them."""

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any, TextIO, cast

from busbw.core.errors import NoMeasurement
from busbw.core.exits import Exit


class ReaderGone(Exception):
    """The reader of stdout (head, less) has seen enough; that is no failure."""


def answer(text: str | bytes) -> None:
    """Part of the answer, on stdout at once; ReaderGone when nobody reads it, NoMeasurement when it cannot be written.

    Bytes have an encoding of their own and are written as they are.
    """
    if sys.stdout is None:
        return
    from busbw.views.words import plain

    with _told():
        if isinstance(text, bytes):
            sys.stdout.buffer.write(text)
        else:
            sys.stdout.write(plain(text, sys.stdout.encoding or "utf-8"))
        sys.stdout.flush()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """What cannot be written to stdout ends as `answer` says."""
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderGone from error
    except OSError as error:
        stop_writing()
        raise NoMeasurement(f"stdout: {error.strerror or error}", "make room, or write to another place") from error


class _Stdout:
    """A stream that fails as `answer` does."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if text == "":  # so click tries whether a stream takes text, and what it raises then is dropped
            return 0
        with _told():
            return self._stream.write(text)

    def flush(self) -> None:
        with _told():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def answering() -> contextlib.AbstractContextManager[Any]:
    """While it lasts, whatever writes to stdout by itself fails as `answer` does: click writes the help and the version."""
    return contextlib.nullcontext() if sys.stdout is None else contextlib.redirect_stdout(cast(TextIO, _Stdout(sys.stdout)))


def stop_writing(stream: int = 1) -> None:
    """Whatever is still written to stdout goes nowhere, so that leaving Python does not fail on it; to stderr with 2."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def talk(text: str) -> None:
    """A line for the person, never for a program. Where it cannot be written the measurement goes on without it."""
    if sys.stderr is not None:
        try:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        except OSError:
            stop_writing(2)


def bug(error: Exception) -> int:
    """An error that nobody expected, with what a report needs."""
    traceback.print_exception(error)
    talk(f"error: a bug in busbw: {type(error).__name__}: {error}\n\nhint: report it with the lines above")
    return int(Exit.BUG)
