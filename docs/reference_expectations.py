"""The page of expectations files: tables and keys."""

from typing import Any

import msgspec
from markdown_table import code, table

from busbw.check.expect.spec import Expectations
from busbw.check.expect.text import KEYS, TABLES

_TYPES = {
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "str": "text",
    "date": "date",
    "list": "list of texts",
}


def expectations() -> str:
    """A section for each table of the file."""
    head = (
        "`busbw check --learn > node.toml` writes this file from a good node, `busbw check --expect"
        " node.toml` compares a node with it: [how to use"
        " it](../how-to/what-a-node-should-have.md). Every key may be missing, but those of a mute"
        " except `subject` and `host`, and `path` of a mount. Other keys are errors. The"
        " [checks](checks.md) BW290 to BW299 judge it.\n\n"
    )
    return head + "\n".join(_section(one) for one in msgspec.structs.fields(Expectations))


def _section(one: Any) -> str:
    several = getattr(one.type, "__origin__", None) is list
    title = f"`[[{one.name}]]`" if several else f"`[{one.name}]`"
    kind = one.type.__args__[0] if several else one.type
    keys = (
        msgspec.structs.fields(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        else ()
    )
    rows = [(code(key.name), _type(key.type), KEYS[f"{one.name}.{key.name}"]) for key in keys]
    body = table(("key", "value", "meaning"), rows).rstrip() if rows else ""
    return f"## {title}\n\n{TABLES[one.name]}\n\n{body}".rstrip() + "\n"


def _type(kind: Any) -> str:
    """The kind of value, from a type such as `Annotated[int, ...] | None`."""
    text = str(kind)
    return next(
        words for name, words in [("list", _TYPES["list"]), *_TYPES.items()] if name in text
    )
