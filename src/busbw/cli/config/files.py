"""Configuration files: where they are, whose they may be, and what is in them."""

import os
import pwd
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from busbw.core.errors import UsageError
from busbw.core.given_file import read_text
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


def shown(path: Path) -> str:
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
    """
    try:
        link = path.lstat()
        target = path.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:
        raise _unreadable(shown(path), error.strerror or str(error)) from error
    if not stat.S_ISREG(target.st_mode):
        raise _unreadable(shown(path), "not a file")
    for status in (link, target):
        _refuse_foreign(path, status)
    return load(path, shown(path))


def load(path: Path, name: str) -> ConfigFile:
    """The file that a user named, whoever owns it. UsageError if it cannot be read."""
    if str(path) == os.devnull:
        return ConfigFile(name, path, {}, "")
    try:
        text = read_text(path, MAX_BYTES)
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
    """UsageError for a file that somebody else made or may change: settings name hosts to log in
    to.
    """
    trusted = {ROOT, os.geteuid()}
    if os.geteuid() == ROOT:  # under sudo, the user's own file
        with suppress(ValueError):
            trusted.add(int(os.environ.get("SUDO_UID", "")))
    name = shown(path)
    named = f"read it, then name it: --config {path}; or remove it"
    if status.st_uid not in trusted:
        raise UsageError(f"{name}: it belongs to {_user(status.st_uid)}, not to you", named)
    if not stat.S_ISLNK(status.st_mode) and status.st_mode & stat.S_IWOTH:
        raise UsageError(f"{name}: everybody may write to it", f"read it, then: chmod o-w {path}")


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
