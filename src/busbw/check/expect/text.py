"""An expectations file as text, with a comment on each key."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from busbw.check.expect.base import gib
from busbw.check.expect.meanings import KEYS, SIZES, TABLES
from busbw.check.expect.spec import Expectations

_COLUMN = 44

_END = """
# Findings that are known, until a day. `subject` and `host` are optional.
# [[mute]]
# check = "nic-mtu"
# subject = "mlx5_3"
# host = "gpu-17"
# reason = "ticket 4711: cable ordered"
# until = 2026-12-31

# Warnings of these checks fail.
# [severity]
# nic-mtu = "fail"
"""


def text(expectations: Expectations, learned: str) -> str:
    """The file. `learned` says from where it is."""
    origin = "".join(one if one.isprintable() else "?" for one in learned)  # a host name may hold anything
    head = f"# What a node should have: busbw check --expect FILE. {origin}\n# Every key may be deleted: then nothing is expected of it.\n"
    return head + "".join(_table(name, value) for name, value in _given(expectations).items()) + _END


def _given(table: msgspec.Struct) -> dict[str, Any]:
    """The keys whose values are not the defaults."""
    fields = msgspec.structs.fields(table)
    values = {one.name: (one, getattr(table, one.name)) for one in fields}
    return {
        name: value
        for name, (one, value) in values.items()
        if value not in (None, [], {}) and (one.default is msgspec.NODEFAULT or value != one.default)
    }


def _table(name: str, value: Any) -> str:
    tables = value if isinstance(value, list) else [value]
    bodies = [_given(one) for one in tables]
    head = f"[[{name}]]" if isinstance(value, list) else f"[{name}]"
    parts = ["".join(_lines(name, head, body)) for body in bodies if body]
    return f"\n# {TABLES[name]}\n" + "\n".join(parts) if parts else ""


def _lines(name: str, head: str, body: Mapping[str, Any]) -> Iterator[str]:
    yield f"{head}\n"
    for key, value in body.items():
        comment = KEYS[f"{name}.{key}"]
        if f"{name}.{key}" in SIZES:
            comment = f"{gib(value)}: {comment}"
        entry = f"{key} = {_value(value)}"
        if comment and len(entry) > _COLUMN:
            yield f"# {key}: {comment}\n"
        yield f"{entry:{_COLUMN}}  # {comment}\n" if comment and len(entry) <= _COLUMN else f"{entry}\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value)
    return _string(value) if isinstance(value, str) else str(value)


def _string(value: str) -> str:
    """A basic string of TOML, in ASCII. Half of a surrogate pair becomes `?`."""
    return f'"{"".join(map(_escaped, value.encode("utf-8", "replace").decode()))}"'


def _escaped(character: str) -> str:
    code = ord(character)
    if character in '"\\':
        return f"\\{character}"
    if 0x20 <= code < 0x7F:
        return character
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
