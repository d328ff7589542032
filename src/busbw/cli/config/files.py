"""Configuration files: where they are, whose they may be, and what is in them."""

import grp
import os
import pwd
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from busbw.core.errors import UsageError
from busbw.core.given_file import decoded, read_stream, read_whole
from busbw.core.settings import FILE_NAME

MAX_BYTES = 1 << 20
ROOT = 0
_TOML_LINE = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration file as it was read. `name` is the path as messages show it."""

    name: str
    path: Path
    values: dict[str, Any]
    text: str

    def where(self, key: str) -> str:
        """The file and the line of a key: `./busbw.toml, line 3`."""
        pattern = re.compile(rf"\s*(?:\[+\s*)?[\"']?{re.escape(key)}[\"']?\s*[=.\]]")
        for number, line in enumerate(self.text.splitlines(), 1):
            if pattern.match(line):
                return f"{self.name}, line {number}"
        return self.name


def shown_path(path: Path) -> str:
    """The path as messages show it: `./busbw.toml`, `~/.config/busbw/busbw.toml`."""
    if path == Path(FILE_NAME):
        return f"./{FILE_NAME}"
    home = os.environ.get("HOME", "")
    if home not in ("", "/") and path.is_relative_to(home):
        return f"~/{path.relative_to(home)}"
    return str(path)


def find(path: Path) -> ConfigFile | None:
    """The file at one of the `places`; None if there is none. UsageError if it is not to be
    trusted, or cannot be read.

    What is read is the file that was judged, even if another one takes its place meanwhile.
    """
    name = shown_path(path)
    try:
        link = path.lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:
        raise _unreadable(name, error.strerror or str(error)) from error
    _refuse_foreign(path, link)
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _unreadable(name, "not a file")
            _refuse_foreign(path, status)
            return _parse(path, name, lambda: read_stream(file, MAX_BYTES))
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise _unreadable(name, "not a file") from None
    except OSError as error:
        raise _unreadable(name, error.strerror or str(error)) from error


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; without O_NONBLOCK a pipe would wait for its writer."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def load(path: Path, name: str) -> ConfigFile:
    """The file that a user named, whoever owns it. UsageError if it cannot be read."""
    if str(path) == os.devnull:
        return ConfigFile(name, path, {}, "")
    return _parse(path, name, lambda: read_whole(path, MAX_BYTES))


def _parse(path: Path, name: str, read: Callable[[], bytes]) -> ConfigFile:
    try:
        text = decoded(read())
    except UnicodeDecodeError as error:
        raise _unreadable(name, "not text in UTF-8") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise _unreadable(name, getattr(error, "strerror", None) or str(error)) from error
    import tomllib  # takes long to import: only where there is a file

    try:
        return ConfigFile(name, path, tomllib.loads(text), text)
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(name, str(error)) from error
    except RecursionError as error:
        raise _unreadable(name, "nested too deeply") from error


def _refuse_foreign(path: Path, status: os.stat_result) -> None:
    """UsageError for a file that another user owns or may write: it names hosts to log in to."""
    trusted = {ROOT, os.geteuid()}
    if os.geteuid() == ROOT:  # under sudo, the user's own file
        with suppress(ValueError):
            trusted.add(int(os.environ.get("SUDO_UID", "")))
    name = shown_path(path)
    named = f"read it, then name it: --config {path}; or remove it"
    if status.st_uid not in trusted:
        raise UsageError(f"{name}: it belongs to {_user(status.st_uid)}, not to you", named)
    if stat.S_ISLNK(status.st_mode):
        return
    if status.st_mode & stat.S_IWOTH:
        raise UsageError(f"{name}: everybody may write to it", f"read it, then: chmod o-w {path}")
    if status.st_mode & stat.S_IWGRP and not _is_private_group(status):
        raise UsageError(f"{name}: its group may write to it", f"read it, then: chmod g-w {path}")


def _is_private_group(status: os.stat_result) -> bool:
    """Whether the file's group is the primary group of its owner, has the owner's name, and has no
    other members: many systems give each user such a group, and files that it may write.
    """
    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    name = owner.pw_name
    return group.gr_gid == owner.pw_gid and group.gr_name == name and {*group.gr_mem} <= {name}


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _not_toml(name: str, problem: str) -> UsageError:
    match = _TOML_LINE.fullmatch(problem)
    reason, line = match.groups() if match else (problem, None)
    where = f"{name}, line {line}" if line else f"{name}, at its end"
    return UsageError(
        f"{where}: {reason[:1].lower()}{reason[1:]}", 'write lines like: engine = "nccl"'
    )


def _unreadable(name: str, reason: str) -> UsageError:
    return UsageError(f"{name}: {reason}", 'name a file with lines like: hosts = "h1:8,h2:8"')
