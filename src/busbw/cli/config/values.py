"""Values of settings, from a file or a variable, checked by their kind."""

import json
import math
from pathlib import Path
from typing import Any

from busbw.cli.options.parameters import DAY_S, seconds_of
from busbw.core.errors import UsageError, unknown
from busbw.core.networks import NETWORKS
from busbw.core.rates import parse_rate
from busbw.core.settings import OFF, Kind, Setting
from busbw.engines.registry import AUTO, ENGINES
from busbw.launch.hosts import parse_hosts

NAMES = {
    "engine": (AUTO, *(row.name for row in ENGINES)),
    "net": tuple(row.name for row in NETWORKS),
}


def from_file(row: Setting, value: Any, where: str, folder: Path) -> str:
    """The text of a setting's `value` in a file, as its option takes it; '' for false.

    `where` is the place of the value, for errors, and `folder` that of the file, to which paths are
    relative. UsageError for a value of another kind, or out of bounds.
    """
    if row.kind is Kind.SECONDS:
        seconds = math.nan if isinstance(value, bool) else seconds_of(str(value))
        if not 0 <= seconds <= DAY_S:
            raise _wrong(row, value, where, f"must be seconds from 0 to {DAY_S}")
        return f"{seconds:g}"
    if row.kind is Kind.PATH_OR_FALSE and str(value).strip().lower() in OFF:
        return ""
    if row.kind is Kind.HOSTS and isinstance(value, list):
        if not value or not all(isinstance(host, str) and host.strip() for host in value):
            raise _wrong(row, value, where, "must be a list of texts")
        value = ",".join(value)
    if not isinstance(value, str):
        raise _wrong(row, value, where, f"must be {row.kind.value.partition(',')[0]}")
    if not value.strip():
        raise _wrong(row, value, where, "it is empty")
    return _checked(row, value, where, folder)


def from_variable(row: Setting, text: str) -> str:
    """The text of a setting's environment variable, as its option takes it; '' for false."""
    if row.kind is Kind.PATH_OR_FALSE and text.lower() in OFF:
        return ""
    if row.kind is Kind.SECONDS:
        seconds = seconds_of(text)
        if not 0 <= seconds <= DAY_S:
            raise UsageError(
                f"{row.variable}={text}: must be seconds from 0 to {DAY_S}",
                _example(row, is_variable=True),
            )
        return f"{seconds:g}"
    return _checked(row, text, row.variable, Path())


def _checked(row: Setting, text: str, where: str, folder: Path) -> str:
    if row.kind is Kind.RATE:
        _check_rate(row, text, where)
    if row.kind is Kind.HOSTS:
        _check_hosts(text, where)
    if row.key in NAMES and text not in NAMES[row.key]:
        known = {name: name for name in NAMES[row.key]}
        raise unknown(row.key, text, known, f"{where}: ")
    if row.kind in (Kind.PATH, Kind.PATH_OR_FALSE):
        try:
            return str(folder / Path(text).expanduser())
        except RuntimeError as error:  # ~name of a user who does not exist
            raise UsageError(f"{where}: {row.key}: {error}", "write the whole path") from error
    return text


def _check_rate(row: Setting, text: str, where: str) -> None:
    is_variable = where == row.variable
    try:
        parse_rate(text, where if is_variable else f"{where}: {row.key} =")
    except UsageError as error:
        raise UsageError(error.message, _example(row, is_variable=is_variable)) from error


def _example(row: Setting, *, is_variable: bool) -> str:
    """The hint that shows how to write a setting."""
    if is_variable:
        value = row.example.strip('"')
        return f"export {row.variable}={value}"
    return f"write {row.key} = {row.example}"


def _check_hosts(text: str, where: str) -> None:
    try:
        parse_hosts(text)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", error.hint) from error


def _wrong(row: Setting, value: Any, where: str, problem: str) -> UsageError:
    return UsageError(
        f"{where}: {row.key} = {_toml(value)}: {problem}", _example(row, is_variable=False)
    )


def _toml(value: Any) -> str:
    """A value as TOML writes it, shortened for a message."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
