"""Machines made of a few lines: a healthy GPU server, as the files and calls that checks read,
to be changed by tests.
"""

import base64
import json
from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec

from busbw.host.snapshot import ArchiveEntry, _RecordedArchive
from busbw.host.source import Source

Change = Callable[["Tree"], object]
_ENTRIES: dict[tuple[str, int], tuple[ArchiveEntry, dict[str, Any]]] = {}


class Tree:
    """Files, links and calls by name."""

    def __init__(self) -> None:
        self.paths: dict[str, dict[str, Any]] = {}
        self.calls: dict[str, dict[str, Any]] = {}

    def copy(self) -> "Tree":
        """Another one with the same files and calls."""
        other = Tree()
        other.paths = dict(self.paths)  # an entry is replaced, and never changed
        other.calls = dict(self.calls)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> "Tree":
        return self.copy()

    def file(self, path: str, text: str) -> "Tree":
        """A file with this text."""
        self.paths[path] = {"text": f"{text}\n"}
        return self

    def files(self, base: str, **texts: str) -> "Tree":
        """Files in a directory."""
        for name, text in texts.items():
            self.file(f"{base}/{name}", text)
        return self

    def data(self, path: str, data: bytes) -> "Tree":
        """A file with these bytes."""
        self.paths[path] = {"base64": base64.b64encode(data).decode()}
        return self

    def link(self, path: str, target: str) -> "Tree":
        """A symbolic link."""
        self.paths[path] = {**self.paths.get(path, {}), "link": target}
        return self

    def listing(self, path: str, *names: str) -> "Tree":
        """A directory with these entries, besides those that are files of the tree."""
        self.paths[path] = {**self.paths.get(path, {}), "names": list(names)}
        return self

    def error(self, path: str, reason: str) -> "Tree":
        """A file that cannot be read."""
        self.paths[path] = {"error": f"{path}: {reason}"}
        return self

    def drop(self, path: str) -> "Tree":
        """Without a file or directory."""
        self.paths = {
            known: entry
            for known, entry in self.paths.items()
            if known != path and not known.startswith(f"{path}/")
        }
        return self

    def call(self, name: str, text: str) -> "Tree":
        """The answer of a library call or command."""
        self.calls[name] = {"text": text}
        return self

    def failing(self, name: str, reason: str) -> "Tree":
        """A call without an answer."""
        self.calls[name] = {"error": reason}
        return self

    def update(self, name: str, **values: Any) -> "Tree":
        """Change values of a call that answers with a JSON object."""
        return self.call(name, json.dumps(json.loads(self.calls[name]["text"]) | values))

    def source(self) -> Source:
        """What reads it."""
        return _Archive(self.copy())


class _Archive(_RecordedArchive):
    """The archive of a tree, of which what is read becomes an entry: most checks read little."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._paths, self._calls = _Entries("path", tree.paths), _Entries("call", tree.calls)

    @cached_property
    def _present(self) -> list[str]:
        return sorted(path for path, fields in self._tree.paths.items() if "error" not in fields)


class _Entries:
    def __init__(self, kind: str, fields: dict[str, dict[str, Any]]) -> None:
        self._kind, self._fields = kind, fields

    def get(self, name: str) -> ArchiveEntry | None:
        fields = self._fields.get(name)
        return None if fields is None else _entry(self._kind, name, fields)


def _entry(kind: str, name: str, fields: dict[str, Any]) -> ArchiveEntry:
    """What an archive has for it, made once: most machines differ in a few files."""
    key = name, id(fields)  # which stays its own, as the entry keeps the fields
    if key not in _ENTRIES:
        _ENTRIES[key] = msgspec.convert({kind: name, **fields}, ArchiveEntry), fields
    return _ENTRIES[key][0]


def environment(**variables: str) -> Change:
    """A change of variables."""
    return lambda tree: tree.update("environment", **variables)


def combine(*changes: Change) -> Change:
    """Several changes, one after the other."""
    return lambda tree: [change(tree) for change in changes]
