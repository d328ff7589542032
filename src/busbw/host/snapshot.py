"""Recorded machines: `Recording` keeps every read made through it, `recorded` and `parse_archive`
answer the same reads later.

A recording is a directory tree, or a text file of JSON lines: the schema with the number of lines
that follow, then for each read {"path", "text" | "base64" | "link" | "names" | "error"} or {"call",
"text" | "error"}. Paths are absolute.
"""

import base64
import json
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from busbw.core.errors import UsageError
from busbw.core.given_file import MAX_FILE_BYTES, read_whole
from busbw.core.gzip_stream import MAGIC, GzipStream, unpacked
from busbw.core.masking import masked
from busbw.host import kernel_log_file
from busbw.host.file_guess import seems
from busbw.host.source import LiveMachine, Reading, Source

SCHEMA = "busbw.host/1"
HEAD = json.dumps({"schema": SCHEMA}).encode()[:-1]  # with which an archive begins
MADE_BY = "busbw check --save FILE makes one"
CALLS = "calls"  # folder of a directory tree that holds recorded calls, one file each
_TREE = ("proc", "sys", CALLS)
_SUFFIXES = (".jsonl", ".jsonl.gz")
_HEAD_BYTES = 4096


class _RecordedTree(LiveMachine):
    def call(self, name: str, live: Callable[[], str]) -> Reading:
        reading = self.read(f"/{CALLS}/{name}")
        if reading.data is None:
            return Reading(None, f"the recording has no '{name}'")
        return reading


class ArchiveEntry(msgspec.Struct, gc=False, frozen=True):
    """A line of an archive: of its schema, of a path, or of a call."""

    schema: str | None = None
    lines: int | None = None  # after the line of the schema; older archives do not say
    path: str | None = None
    call: str | None = None
    text: str | None = None
    base64: bytes | None = None
    link: str | None = None
    names: tuple[str, ...] = ()
    error: str | None = None

    def reading(self) -> Reading | None:
        """The contents or the error of a file or call; None if neither was read."""
        if self.text is not None:
            return Reading(self.text.encode())
        if self.base64 is not None:
            return Reading(self.base64)
        return None if self.error is None else Reading(None, self.error)


_ENCODER = json.JSONEncoder(ensure_ascii=False)
_DECODER = msgspec.json.Decoder(ArchiveEntry)


class _RecordedArchive:
    def __init__(self, entries: list[ArchiveEntry]) -> None:
        self._paths = {entry.path: entry for entry in entries if entry.path is not None}
        self._calls = {entry.call: entry for entry in entries if entry.call is not None}
        self._present = sorted(path for path, entry in self._paths.items() if entry.error is None)

    def read(self, path: str) -> Reading:
        return _reading(self._paths.get(path), f"{path}: not in the recording")

    def names(self, path: str) -> tuple[str, ...]:
        names = set(self._below(path.rstrip("/") + "/"))
        entry = self._paths.get(path)
        if entry:
            names.update(entry.names)
        return tuple(sorted(names))

    def _below(self, folder: str) -> Iterator[str]:
        """Names in a folder that ends with a slash, from the paths of what is in it."""
        index = bisect_left(self._present, folder)
        while index < len(self._present) and self._present[index].startswith(folder):
            name, deeper, _ = self._present[index][len(folder) :].partition("/")
            yield name
            # "0" is the character after "/": all that is in the folder `name` stands before it.
            index = bisect_left(self._present, f"{folder}{name}0", index) if deeper else index + 1

    def link(self, path: str) -> str | None:
        entry = self._paths.get(path)
        return entry.link if entry else None

    def call(self, name: str, live: Callable[[], str]) -> Reading:
        return _reading(self._calls.get(name), f"the recording has no '{name}'")


def _reading(entry: ArchiveEntry | None, missing: str) -> Reading:
    return (entry and entry.reading()) or Reading(None, missing)


def recorded(path: Path) -> Source:
    """The recorded machine in a directory tree or in an archive of `Recording`, or the one whose
    kernel log a file has.

    UsageError if `path` is none of these.
    """
    if path.is_dir():
        return _RecordedTree(path)
    try:
        data = unpacked(read_whole(path), MAX_FILE_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", MADE_BY) from error
    return kernel_log_file.source(data, str(path)) or parse_archive(data, str(path))


def archives_in(name: str) -> list[str]:
    """The archives in a folder, by name; none for another file, and for a copy of a machine's
    files.
    """
    return [str(file) for file in _files_in(name) if _may_be_archive(file)]


def others_in(name: str) -> list[str]:
    """The names of what else is in a folder of archives, such as a named pipe."""
    others = [file for file in _files_in(name) if not _may_be_archive(file)]
    return [f"{file.name}/" if file.is_dir() else file.name for file in others]


def _files_in(name: str) -> list[Path]:
    folder = Path(name)
    if not folder.is_dir() or is_tree(folder):
        return []
    try:
        return sorted(file for file in folder.iterdir() if not file.name.startswith("."))
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}", "name a folder that you can read") from error


def _may_be_archive(file: Path) -> bool:
    """Whether it is an archive or named as one. A pipe, which may have no writer, is none."""
    regular = file.is_file() or not file.exists()  # a link to nothing is read, which says so
    return (regular and file.name.endswith(_SUFFIXES)) or is_archive(str(file))


def is_tree(folder: Path) -> bool:
    """Whether a folder is a copy of a machine's files."""
    return any((folder / part).is_dir() for part in _TREE)


def is_archive(name: str) -> bool:
    """Whether the file begins as an archive, also one that is compressed."""
    try:
        if not Path(name).is_file():
            return False
        with Path(name).open("rb") as file:
            packed = file.read(len(MAGIC)) == MAGIC
            file.seek(0)
            head = (GzipStream(file) if packed else file).read(_HEAD_BYTES)
        return _is_header(_DECODER.decode(head.partition(b"\n")[0]))
    except (OSError, EOFError, zlib.error, ValueError):
        return False


def parse_archive(text: str | bytes, name: str = "recording") -> Source:
    """The machine that an archive's text describes.

    UsageError names the line that does not belong in an archive.
    """
    data = text.encode() if isinstance(text, str) else text
    try:
        first, *entries = _DECODER.decode_lines(data)
    except (ValueError, RecursionError) as error:
        # A line is wrong or nested without end, or there is no line.
        raise _archive_error(data, name) from error
    if not _is_header(first) or not all(map(_is_read, entries)):
        raise _archive_error(data, name)
    if first.lines not in (None, len(entries)):
        raise UsageError(
            f"{name}: it has {len(entries)} of {first.lines} lines: it was cut off", MADE_BY
        )
    return _RecordedArchive(entries)


def _is_header(entry: ArchiveEntry) -> bool:
    return entry == ArchiveEntry(schema=SCHEMA, lines=entry.lines)


def _is_read(entry: ArchiveEntry) -> bool:
    return entry.path is not None or entry.call is not None


def _archive_error(data: bytes, name: str) -> UsageError:
    """The error for the first line that is wrong."""
    lines = data.splitlines()
    for number, line in enumerate(lines, 1):
        try:
            entry = _DECODER.decode(line)
        except (ValueError, RecursionError):
            entry = None
        if entry and (_is_header(entry) if number == 1 else _is_read(entry)):
            continue
        start = line.decode("utf-8", "replace")[:40]
        if number == 1 and not (entry and _is_read(entry)):
            kind = seems(data)
            seen = f", but seems to be {kind}" if kind else f": line 1 is '{start}'"
            return UsageError(
                f"{name}: neither a snapshot ({SCHEMA}) nor a kernel log{seen}",
                "busbw check --save FILE makes a snapshot, sudo dmesg > FILE a kernel log",
            )
        begun = entry is None and line.startswith(b"{") and not data.endswith(b"\n")
        if begun and number == len(lines):
            return UsageError(f"{name}: it ends within line {number}: it was cut off", MADE_BY)
        expected = f'{{"schema": "{SCHEMA}"}}' if number == 1 else "a path or a call"
        return UsageError(f"{name}: line {number} is '{start}', not {expected}", MADE_BY)
    return UsageError(f"{name}: it is empty", MADE_BY)


class Recording:
    """A Source that reads from `source`, and records what it read for a snapshot."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._paths: dict[str, dict[str, Any]] = {}
        self._calls: dict[str, dict[str, Any]] = {}

    def read(self, path: str) -> Reading:
        """Contents of a file, or why it cannot be read; both are recorded."""
        reading = self._source.read(path)
        self._paths.setdefault(path, {}).update(_fields(reading))
        return reading

    def names(self, path: str) -> tuple[str, ...]:
        """Names in a directory. They are recorded, unless it is empty or missing."""
        names = self._source.names(path)
        if names:
            self._paths.setdefault(path, {}).update(names=list(names))
        return names

    def link(self, path: str) -> str | None:
        """Target of a symbolic link; recorded if there is one."""
        target = self._source.link(path)
        if target is not None:
            self._paths.setdefault(path, {}).update(link=masked(target))
        return target

    def call(self, name: str, live: Callable[[], str]) -> Reading:
        """Text of a library call, or why there is none; both are recorded."""
        reading = self._source.call(name, live)
        self._calls[name] = _fields(reading)
        return reading

    def archive(self) -> str:
        """All that was read so far, as text for `parse_archive`."""
        lines: list[dict[str, Any]] = [
            {"schema": SCHEMA, "lines": len(self._paths) + len(self._calls)}
        ]
        lines += [{"path": path, **fields} for path, fields in sorted(self._paths.items())]
        lines += [{"call": name, **fields} for name, fields in sorted(self._calls.items())]
        text = "".join(_ENCODER.encode(line) + "\n" for line in lines)
        return text.encode("utf-8", "replace").decode()  # names of files may be any bytes


def _fields(reading: Reading) -> dict[str, str]:
    if reading.data is None:
        return {"error": masked(reading.reason)}
    text = masked(reading.data.decode("utf-8", "surrogateescape"))
    # JSON needs six characters for a zero byte, of which a PCI configuration space has many.
    binary = 2 * text.count("\0") > len(text)
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        data, binary = text.encode("utf-8", "surrogateescape"), True
    return {"base64": base64.b64encode(data).decode("ascii")} if binary else {"text": text}
