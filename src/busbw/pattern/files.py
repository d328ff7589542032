"""The files of a job by their names: single ones, stdin, or all of a directory."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from busbw.core.errors import UsageError
from busbw.core.given_file import refuse_device
from busbw.core.pattern import Pattern
from busbw.pattern.registry import read
from busbw.pattern.source import Source, opened

CAPTURED = ".capture"


def load(files: Sequence[str], source: str | None = None) -> Pattern:
    """The record in these files (- = stdin, a directory stands for its files), in the format
    `source` or that of their content.

    UsageError if they cannot be read, or hold no call.
    """
    return read(sources(files), source)


def sources(files: Sequence[str]) -> Iterator[Source]:
    """Every file, opened when it is needed: a job can have more ranks than a process may open
    files.
    """
    names = [name for file in files for name in _names(file)]
    if names.count("-") > 1:
        raise UsageError("stdin is given twice", "give - once")
    for number, name in enumerate(names):
        yield opened(name, _open(name), number, len(names))


def _names(file: str) -> list[str]:
    path = Path(file)
    if file == "-" or not path.is_dir():
        return [file]
    try:
        found = sorted(
            (one for one in path.iterdir() if one.is_file() and not one.name.startswith(".")),
            key=_in_order,
        )
        # beside them stands the pattern that was made of them
        found = [one for one in found if one.suffix == CAPTURED] or found
    except OSError as error:
        raise UsageError(
            f"{file}: {error.strerror}", "name a directory that you can read"
        ) from error
    if not found:
        raise UsageError(
            f"{file}: there are no files in this directory",
            "name the directory with the files of the ranks",
        )
    return [str(one) for one in found]


def _in_order(path: Path) -> tuple[int, str]:
    """`rank_2` before `rank_10`."""
    return len(path.name), path.name


def _open(name: str) -> BinaryIO:
    if name == "-":
        return sys.stdin.buffer
    try:
        refuse_device(name)
        return Path(name).open("rb", buffering=0)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}", "name a file, or - for stdin") from error
