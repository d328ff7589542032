"""Fills the files of templates/: `@{name}` stands for a value.

A value cannot change the structure of the file: JSON is parsed before it is filled, and words of a
shell script are quoted. A member of a JSON object, or a line of a script, whose value is None is
left out. In JSON, lines that begin with // are comments.
"""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PLACEHOLDER = re.compile(r"@\{(\w+)\}")


class ShellSyntax(str):
    """Text that stands in a script as it is, such as the pattern of a `case`."""

    __slots__ = ()


def fill_json(name: str, values: Mapping[str, Any]) -> str:
    """The JSON template `name`; a string that is a placeholder alone becomes a value of any
    type.
    """
    lines = [line for line in _read(name).splitlines() if not line.lstrip().startswith("//")]
    return json.dumps(_filled(json.loads("\n".join(lines)), values), indent=2) + "\n"


def _filled(part: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(part, dict):
        members = {key: _filled(value, values) for key, value in part.items()}
        return {key: value for key, value in members.items() if value is not None}
    if isinstance(part, list):
        return [_filled(item, values) for item in part]
    if isinstance(part, str):
        whole = _PLACEHOLDER.fullmatch(part)
        return values[whole.group(1)] if whole else _substituted(part, values)
    return part


def fill_script(name: str, values: Mapping[str, Any]) -> str:
    """The shell script `name`; a list or tuple becomes several words."""
    quoted = {key: _quoted(value) for key, value in values.items() if value is not None}
    lines = [
        _substituted(line, quoted)
        for line in _read(name).splitlines(keepends=True)
        if all(values[key] is not None for key in _PLACEHOLDER.findall(line))
    ]
    return "".join(lines)


def _quoted(value: Any) -> str:
    if isinstance(value, ShellSyntax):
        return value
    if isinstance(value, list | tuple):
        return shlex.join(value)
    return shlex.quote(str(value))


def _substituted(text: str, values: Mapping[str, Any]) -> str:
    return _PLACEHOLDER.sub(lambda match: str(values[match.group(1)]), text)


def _read(name: str) -> str:
    return (Path(__file__).with_name("templates") / name).read_text(encoding="utf-8")
