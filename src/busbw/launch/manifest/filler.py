"""Fills the files of templates/: `@{name}` stands for a value.

A value cannot change the structure of the file: JSON is parsed before it is filled, and words of a
shell script or a systemd unit are quoted. A member of a JSON object, or a line of a script or unit,
whose value is None is left out. In JSON, lines that begin with // are comments.
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# The backslash comes first: the others add some.
_ESCAPES_IN_UNIT = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "%": "%%", "$": "$$"}
_SPECIAL_IN_UNIT = re.compile(r"[\s\"'\\;]")
_PLACEHOLDER = re.compile(r"@\{(\w+)\}")


class ShellSyntax(str):
    """Text that stands in a script as it is, such as the pattern of a `case`."""

    __slots__ = ()


def fill_json(name: str, values: Mapping[str, Any]) -> str:
    """The JSON template `name` with its values.

    A string that is only a placeholder becomes a value of any type.
    """
    lines = [line for line in _read(name).splitlines() if not line.lstrip().startswith("//")]
    return json.dumps(_fill(json.loads("\n".join(lines)), values), indent=2) + "\n"


def _fill(part: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(part, dict):
        members = {key: _fill(value, values) for key, value in part.items()}
        return {key: value for key, value in members.items() if value is not None}
    if isinstance(part, list):
        return [_fill(item, values) for item in part]
    if isinstance(part, str):
        placeholder = _PLACEHOLDER.fullmatch(part)
        return values[placeholder.group(1)] if placeholder else _substitute(part, values)
    return part


def fill_script(name: str, values: Mapping[str, Any]) -> str:
    """The shell script `name` with its values; a list or tuple becomes several words."""
    return _fill_lines(name, values, _quote)


def fill_unit(name: str, values: Mapping[str, Any]) -> str:
    """The systemd unit `name` with its values; a list or tuple becomes words of a command."""
    return _fill_lines(name, values, _quote_in_unit)


def fill_text(name: str, values: Mapping[str, int]) -> str:
    """The template `name` with its values, which are numbers: they need no quotes."""
    return _substitute(_read(name), values)


def plain(name: str) -> str:
    return _read(name)


def _fill_lines(name: str, values: Mapping[str, Any], quote: Callable[[Any], str]) -> str:
    quoted = {key: quote(value) for key, value in values.items() if value is not None}
    lines = []
    for line in _read(name).splitlines(keepends=True):
        placeholders = _PLACEHOLDER.findall(line)
        if all(values[key] is not None for key in placeholders):
            lines.append(_substitute(line, quoted))
    return "".join(lines)


def _quote(value: Any) -> str:
    if isinstance(value, ShellSyntax):
        return value
    if isinstance(value, list | tuple):
        return shlex.join(value)
    return shlex.quote(str(value))


def _quote_in_unit(value: Any) -> str:
    """As systemd.service(5) reads the words of a command, or systemd.unit(5) another setting."""
    if isinstance(value, list | tuple):
        return " ".join(map(_quote_word_in_unit, value))
    return str(value).replace("%", "%%")


def _quote_word_in_unit(word: str) -> str:
    if isinstance(word, ShellSyntax):
        return word
    escaped = word
    for character, escape in _ESCAPES_IN_UNIT.items():
        escaped = escaped.replace(character, escape)
    return escaped if word and not _SPECIAL_IN_UNIT.search(word) else f'"{escaped}"'


def _substitute(text: str, values: Mapping[str, Any]) -> str:
    return _PLACEHOLDER.sub(lambda match: str(values[match.group(1)]), text)


def _read(name: str) -> str:
    return (Path(__file__).with_name("templates") / name).read_text(encoding="utf-8")
