"""Every read of a machine's facts goes through a Source, so that tests can read recorded
machines.
"""

import errno
import os
import stat
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import msgspec

_LINK_LIMIT = 40  # in one path, as in Linux


class Reading(msgspec.Struct, frozen=True, gc=False):
    """Bytes of a file or of a library call's text.

    `data` is None if there are none, and `reason` says why.
    """

    data: bytes | None
    reason: str = ""

    @property
    def text(self) -> str | None:
        """The data as text without surrounding white space."""
        return None if self.data is None else self.data.decode("utf-8", "replace").strip()


class Unavailable(Exception):
    """A library or service that does not answer on this machine; the text gives the reason."""


class Source(Protocol):
    """Reads of one machine.

    No method raises: failed reads are a Reading with a reason, an empty tuple or None.
    """

    def read(self, path: str) -> Reading:
        """Contents of a file."""

    def names(self, path: str) -> tuple[str, ...]:
        """Sorted names in a directory; empty if there is no such directory."""

    def link(self, path: str) -> str | None:
        """Target of a symbolic link, unresolved; None if there is no such link."""

    def call(self, name: str, live: Callable[[], str]) -> Reading:
        """Text of a library call.

        It comes from `live()`, which may raise Unavailable, or from a recording under `name`.
        """


class LiveMachine:
    """The machine under `root`; library calls always go to the machine itself.

    A tree that was copied from another machine is no part of this one: its symbolic links, absolute
    ones and `..` too, lead to places within the tree, as openat2's RESOLVE_IN_ROOT has it, and only
    its regular files are read.
    """

    def __init__(self, root: str | Path = "/") -> None:
        self.root = Path(root)
        self._is_tree = self.root.resolve() != Path("/")
        self._folders: dict[str, Path] = {}

    def at(self, path: str) -> Path:
        """Where a file or directory really is, links followed; OSError for a loop of links."""
        return self._resolve(path) if self._is_tree else self.root / path.lstrip("/")

    def _at_link(self, path: str) -> Path:
        """As `at`, but the last name stays a link."""
        folder, _, name = path.rstrip("/").rpartition("/")
        return self._folder(folder) / name

    def _folder(self, path: str) -> Path:
        if path not in self._folders:
            self._folders[path] = self.at(path)
        return self._folders[path]

    def _resolve(self, path: str) -> Path:
        """Follow all links of a path, but not out of the tree."""
        place, links = self.root, 0
        names = path.split("/")[::-1]  # those to go, the next one last
        while names:
            name = names.pop()
            if name == ".." and place != self.root:
                place = place.parent
            if name in ("", ".", ".."):
                continue
            try:
                # Path.readlink would normalize the target.
                target = os.readlink(place / name)  # noqa: PTH115
            except OSError:  # no link
                place = place / name
                continue
            links += 1
            if links > _LINK_LIMIT:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target.startswith("/"):
                place = self.root
            names += target.split("/")[::-1]
        return place

    def read(self, path: str) -> Reading:
        try:
            file = self.at(path)
            if self._is_tree and not stat.S_ISREG(file.lstat().st_mode) and not file.is_dir():
                return Reading(None, f"{path}: not a regular file")
            return Reading(file.read_bytes())
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            return Reading(None, f"{path}: {reason.lower()}")

    def names(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(entry.name for entry in self.at(path).iterdir()))
        except OSError:
            return ()

    def link(self, path: str) -> str | None:
        try:
            # Path.readlink would normalize the target.
            return os.readlink(self._at_link(path))  # noqa: PTH115
        except OSError:
            return None

    def call(self, name: str, live: Callable[[], str]) -> Reading:
        """What `live()` returns, or the reason why it is Unavailable."""
        try:
            return Reading(live().encode())
        except Unavailable as error:
            return Reading(None, str(error))


_SourceT = TypeVar("_SourceT", bound=Source)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def once(
    read: Callable[Concatenate[_SourceT, _Arguments], _Result],
) -> Callable[Concatenate[_SourceT, _Arguments], _Result]:
    """`read`, but a source with a dictionary `results` keeps its results there.

    The checks of one machine ask for the same facts many times.
    """

    @wraps(read)
    def kept(source: _SourceT, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        results: dict[Any, _Result] | None = getattr(source, "results", None)
        if results is None:
            return read(source, *args, **kwargs)
        key = (read, args, tuple(kwargs.items()))
        if key not in results:
            results[key] = read(source, *args, **kwargs)
        return results[key]

    return kept
