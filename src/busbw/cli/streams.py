"""stdout is the answer, stderr the talk: how both are written, and what happens when nobody reads them."""

import os
import sys

from busbw.core.errors import CannotTell


class ReaderGone(Exception):
    """The reader of stdout (head, less) has seen enough; that is no failure."""


def answer(text: str) -> None:
    """Part of the answer, on stdout at once; ReaderGone when nobody reads it, CannotTell when it cannot be written."""
    if sys.stdout is None:
        return
    try:
        from busbw.views.words import plain

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
