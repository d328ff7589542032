"""stdout is the answer, stderr the talk: how both are written, and what happens when nobody reads them."""

import os
import sys
import traceback

from busbw.core.errors import CannotTell
from busbw.core.exits import Exit


class ReaderGone(Exception):
    """The reader of stdout (head, less) has seen enough; that is no failure."""


def answer(text: str | bytes) -> None:
    """Part of the answer, on stdout at once; ReaderGone when nobody reads it, CannotTell when it cannot be written.

    Bytes have an encoding of their own and are written as they are.
    """
    if sys.stdout is None:
        return
    try:
        from busbw.views.words import plain

        if isinstance(text, bytes):
            sys.stdout.buffer.write(text)
        else:
            sys.stdout.write(plain(text, sys.stdout.encoding or "utf-8"))
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise ReaderGone from error
    except OSError as error:
        stop_writing()
        raise CannotTell(f"stdout: {error.strerror or error}", "make room, or write to another place") from error


def stop_writing() -> None:
    """Whatever is still written to stdout goes nowhere, so that leaving Python does not fail on it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def talk(text: str) -> None:
    """A line for the person, never for a program."""
    if sys.stderr is not None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def bug(error: Exception) -> int:
    """An error that nobody expected, with what a report needs."""
    traceback.print_exception(error)
    talk(f"error: a bug in busbw: {type(error).__name__}: {error}\n\nhint: report it with the lines above")
    return int(Exit.BUG)
