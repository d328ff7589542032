"""Output: the answer on stdout, messages on stderr, and what happens when a stream cannot be
written.
"""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TextIO, cast

from busbw.core.errors import Exit, NoMeasurement, out_of_memory
from busbw.core.unseen import escape_invisible


class ReaderGone(Exception):
    """The reader of stdout (head, less) closed it, which is not a failure."""


_listeners: list[Callable[[], None]] = []  # called before anything is printed


def before_output(listener: Callable[[], None]) -> None:
    """Call `listener` before each output of this process. It replaces an earlier one."""
    _listeners[:] = [listener]


def print_out(text: str | bytes, *, controls: bool = False, alarm: bool = False) -> None:
    """Write part of the answer to stdout, and flush. Characters that a terminal would not show are
    written out, unless the caller has `controls` in the text on purpose. Where there are colors,
    verdicts have theirs, or a line that is an `alarm` is red.

    Bytes are for other programs, and unchanged unless stdout is a terminal.

    ReaderGone if stdout was closed by its reader, NoMeasurement if it cannot be written.
    """
    if sys.stdout is None:
        return
    from busbw.cli.terminal import has_colors
    from busbw.ui.number_formats import plain

    for listener in _listeners:
        listener()
    with _stdout_errors():
        if isinstance(text, bytes) and not sys.stdout.isatty():
            sys.stdout.buffer.write(text)
        else:
            if isinstance(text, bytes):
                text = text.decode("utf-8", "replace")
            if not controls:
                text = escape_invisible(text)
            # JSON and pages, which begin so, are for programs
            if has_colors() and not text.startswith(("{", "[", "<")):
                text = _colored(text, alarm=alarm)
            sys.stdout.write(plain(text, sys.stdout.encoding or "utf-8"))
        sys.stdout.flush()


def print_json(document: object) -> None:
    """Print a structure as JSON, indented."""
    import msgspec

    print_out(msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n")


def _colored(text: str, *, alarm: bool) -> str:
    from busbw.ui.colors import RED, painted, with_colors

    if not alarm:
        return with_colors(text)
    line = text.rstrip("\n")
    return painted(line, RED) + text[len(line) :]


@contextlib.contextmanager
def _stdout_errors() -> Iterator[None]:
    """Errors of writing to stdout become those of `print_out`."""
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderGone from error
    except OSError as error:
        stop_writing()
        raise NoMeasurement(
            f"stdout: {error.strerror or error}", "free some space, or write elsewhere"
        ) from error


class _Stdout:
    """A stream with the errors of `print_out`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        # With '' click tests whether a stream is for text, and ignores what it raises.
        if text == "":
            return 0
        with _stdout_errors():
            return self._stream.write(text)

    def flush(self) -> None:
        with _stdout_errors():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def guarded_stdout() -> contextlib.AbstractContextManager[Any]:
    """Everything written to stdout within it has the errors of `print_out`: click prints the help
    and the version itself.
    """
    if sys.stdout is None:
        return contextlib.nullcontext()
    return contextlib.redirect_stdout(cast(TextIO, _Stdout(sys.stdout)))


def stop_writing(stream: int = 1) -> None:
    """Discard all further output to the descriptor, so that Python's exit does not fail on it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def print_err(text: str) -> None:
    """Write a message for people to stderr. If that fails, measuring continues without messages."""
    if sys.stderr is not None:
        try:
            for listener in _listeners:
                listener()
            sys.stderr.write(escape_invisible(text) + "\n")
            sys.stderr.flush()
        except OSError:
            stop_writing(2)


def bug(error: Exception) -> int:
    """Report an unexpected error with its traceback; the exit code. Out of memory is no bug."""
    memory = out_of_memory(error)
    if memory:
        print_err(memory.render())
        return int(memory.exit)
    print_err("".join(traceback.format_exception(error)).rstrip())
    print_err(
        f"error: a bug in busbw: {type(error).__name__}: {error}\n\n"
        "hint: report it with the lines above"
    )
    return int(Exit.BUG)
