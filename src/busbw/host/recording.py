"""Recorded machines: `Recording` keeps every read made through it, `recorded` and `parse_archive` answer the same reads later.

A recording is a directory tree, or a text file of JSON lines: the schema, then for each read
{"path", "text" | "base64" | "link" | "names" | "error"} or {"call", "text" | "error"}. Paths are absolute.
"""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from busbw.core.env import masked
from busbw.core.errors import UsageError
from busbw.host.source import Live, Reading, Source

SCHEMA = "busbw.host/1"
MADE_BY = "busbw snapshot makes one"
CALLS = "calls"  # folder of a directory tree that holds recorded calls, one file each


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
                parent, _, name = path.rpartition("/")
                if parent in self._children:  # and so its own parents are known
                    self._children[parent].add(name)
                else:
                    self._add_parents(path)
            if "names" in entry:
                self._children.setdefault(path, set()).update(entry["names"])

    def _add_parents(self, path: str) -> None:
        while path != "/":
            parent, _, name = path.rpartition("/")
            path = parent or "/"
            names = self._children.setdefault(path, set())
            if name in names:
                return  # and so the parents are known
            names.add(name)

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


def recorded(path: Path) -> Source:
    """A recorded machine, from a directory tree or an archive that `Recording` made; UsageError if it is neither."""
    if path.is_dir():
        return _RecordedTree(path)
    try:
        return parse_archive(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", MADE_BY) from error


def parse_archive(text: str | bytes, name: str = "recording") -> Source:
    """The machine that an archive's text describes; UsageError names the line that is none of an archive."""
    try:
        first, *entries = msgspec.json.Decoder(dict[str, Any]).decode_lines(text)
    except (msgspec.DecodeError, ValueError) as error:
        raise _refused(_decoded(text), name) from error
    if first != {"schema": SCHEMA} or not all("path" in entry or "call" in entry for entry in entries):
        raise _refused(_decoded(text), name)
    return _RecordedArchive(entries)


def _decoded(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode("utf-8", "replace")


def _refused(text: str, name: str) -> UsageError:
    """The error for the first line that is wrong."""
    for number, line in enumerate(text.splitlines(), 1):
        try:
            entry = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:
            entry = {}
        if (entry != {"schema": SCHEMA}) if number == 1 else not {"path", "call"} & set(entry):
            expected = f'{{"schema": "{SCHEMA}"}}' if number == 1 else "a path or a call"
            return UsageError(f"{name}: line {number} is '{line[:40]}', not {expected}", MADE_BY)
    return UsageError(f"{name}: it is empty", MADE_BY)


class Recording:
    """A Source that passes reads on to `source` and keeps what came back."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._paths: dict[str, dict[str, Any]] = {}
        self._calls: dict[str, dict[str, Any]] = {}

    def read(self, path: str) -> Reading:
        """Contents of a file, kept."""
        reading = self._source.read(path)
        self._paths.setdefault(path, {}).update(_fields(reading))
        return reading

    def names(self, path: str) -> tuple[str, ...]:
        """Names in a directory, kept where there are any."""
        names = self._source.names(path)
        if names:
            self._paths.setdefault(path, {}).update(names=list(names))
        return names

    def link(self, path: str) -> str | None:
        """Target of a symbolic link, kept where there is one."""
        target = self._source.link(path)
        if target is not None:
            self._paths.setdefault(path, {}).update(link=target)
        return target

    def call(self, name: str, live: Callable[[], str]) -> Reading:
        """Text of a library call, kept."""
        reading = self._source.call(name, live)
        self._calls[name] = _fields(reading)
        return reading

    def archive(self) -> str:
        """All that was read so far, as the text `parse_archive` takes."""
        lines: list[dict[str, Any]] = [{"schema": SCHEMA}]
        lines += [{"path": path, **fields} for path, fields in sorted(self._paths.items())]
        lines += [{"call": name, **fields} for name, fields in sorted(self._calls.items())]
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _fields(reading: Reading) -> dict[str, str]:
    if reading.data is None:
        return {"error": reading.reason}
    try:
        text = reading.data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(reading.data).decode("ascii")}
    return {"text": masked(text)}
