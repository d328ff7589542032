"""Where facts of a machine come from: the live one, or a recording. Every read of the host room goes through a Source.

A recording is a directory tree, or one text file of JSON lines: the schema, then for each read
{"path", "text" | "base64" | "link" | "names" | "error"} or {"call", "text" | "error"}. Paths are absolute.
"""

import base64
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from busbw.core.errors import UsageError

SCHEMA = "busbw.host/1"
CALLS = "calls"  # folder of a directory tree that holds recorded calls, one file each


@dataclass(frozen=True, slots=True)
class Reading:
    """Bytes of a file or text of a call; `data` is None where there are none, and `reason` says why."""

    data: bytes | None
    reason: str = ""

    @property
    def text(self) -> str | None:
        """The data as text without surrounding white space."""
        return None if self.data is None else self.data.decode("utf-8", "replace").strip()


class Unavailable(Exception):
    """A library call that cannot be made on this machine; the text says why."""


class Source(Protocol):
    """Reads of one machine. Nothing here raises: what cannot be read is a Reading with a reason, an empty tuple or None."""

    def read(self, path: str) -> Reading:
        """Contents of a file."""

    def names(self, path: str) -> tuple[str, ...]:
        """Sorted names in a directory; empty where there is none."""

    def link(self, path: str) -> str | None:
        """Target of a symbolic link as it is written; None where there is none."""

    def call(self, name: str, live: Callable[[], str]) -> Reading:
        """Text of a library call: `live()` (which may raise Unavailable) on the live machine, elsewhere what was recorded as `name`."""


def _why(error: OSError) -> str:
    return (os.strerror(error.errno) if error.errno else str(error)).lower()


class Live:
    """The machine under `root`; library calls always go to the machine itself."""

    def __init__(self, root: str | Path = "/") -> None:
        self.root = Path(root)

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def read(self, path: str) -> Reading:
        """Contents of a file."""
        try:
            return Reading(self._at(path).read_bytes())
        except OSError as error:
            return Reading(None, f"{path}: {_why(error)}")

    def names(self, path: str) -> tuple[str, ...]:
        """Sorted names in a directory."""
        try:
            return tuple(sorted(entry.name for entry in self._at(path).iterdir()))
        except OSError:
            return ()

    def link(self, path: str) -> str | None:
        """Target of a symbolic link."""
        try:
            return os.readlink(self._at(path))  # noqa: PTH115 - Path.readlink would normalise the target
        except OSError:
            return None

    def call(self, name: str, live: Callable[[], str]) -> Reading:
        """What `live()` returns, or why it is Unavailable."""
        try:
            return Reading(live().encode())
        except Unavailable as error:
            return Reading(None, str(error))


class _RecordedTree(Live):
    def call(self, name: str, live: Callable[[], str]) -> Reading:
        reading = self.read(f"/{CALLS}/{name}")
        return reading if reading.data is not None else Reading(None, f"the recording has no '{name}'")


class _RecordedArchive:
    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self._paths = {entry["path"]: entry for entry in entries if "path" in entry}
        self._calls = {entry["call"]: entry for entry in entries if "call" in entry}
        self._children: dict[str, set[str]] = {}
        for path, entry in self._paths.items():
            if "error" not in entry:
                self._add_parents(path)
            self._children.setdefault(path, set()).update(entry.get("names", ()))

    def _add_parents(self, path: str) -> None:
        while path != "/":
            parent, _, name = path.rpartition("/")
            path = parent or "/"
            self._children.setdefault(path, set()).add(name)

    def read(self, path: str) -> Reading:
        return _reading(self._paths.get(path), f"{path}: not in the recording")

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(self._children.get(path, ())))

    def link(self, path: str) -> str | None:
        link = self._paths.get(path, {}).get("link")
        return None if link is None else str(link)

    def call(self, name: str, live: Callable[[], str]) -> Reading:
        return _reading(self._calls.get(name), f"the recording has no '{name}'")


def _reading(entry: dict[str, Any] | None, missing: str) -> Reading:
    if entry is not None and "text" in entry:
        return Reading(entry["text"].encode())
    if entry is not None and "base64" in entry:
        return Reading(base64.b64decode(entry["base64"]))
    return Reading(None, entry["error"] if entry is not None and "error" in entry else missing)


def Recorded(path: str | Path) -> Source:
    """A recorded machine, from a directory tree or an archive that `Recording` made; UsageError when it is neither."""
    where = Path(path)
    if where.is_dir():
        return _RecordedTree(where)
    return parse_archive(_archive_text(where), str(path))


def _archive_text(where: Path) -> str:
    try:
        return where.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{where}: {error}", "name a recorded tree, or an archive made by recording a host") from error


def parse_archive(text: str, where: str = "archive") -> Source:
    """The machine that an archive's text describes; UsageError names the line that is wrong."""
    entries: list[dict[str, Any]] = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{where}:{number}: not JSON: {line[:60]!r}", "record the host again") from error
        if number == 1 and (not isinstance(entry, dict) or entry.get("schema") != SCHEMA):
            raise UsageError(f"{where}: not a {SCHEMA} recording: {line[:60]!r}", "name an archive made by recording a host")
        if not isinstance(entry, dict) or (number > 1 and "path" not in entry and "call" not in entry):
            raise UsageError(f"{where}:{number}: neither a path nor a call: {line[:60]!r}", "record the host again")
        entries.append(entry)
    if not entries:
        raise UsageError(f"{where}: empty", "name an archive made by recording a host")
    return _RecordedArchive(entries[1:])
