"""The reference page of busbw.result/1: a field table for every structure, from the structures
themselves.
"""

import inspect
from enum import Enum
from types import UnionType
from typing import Annotated, get_args, get_origin

import msgspec
from markdown_table import code, field_table

from busbw.core.options import BY_FIELD
from busbw.core.sweep import SweepSpec
from busbw.report.results import structures


def fields() -> str:
    """Every structure of a result, the nearest first, with types, defaults and descriptions."""
    kinds = (
        f"`{name}` is a [{kind.__name__}](#{kind.__name__.lower()})"
        for name, kind in structures().items()
    )
    intro = (
        "`busbw run ... --json FILE` updates this file after every size, atomically. `schema` says"
        f" which kind of result it is: {', '.join(kinds)}.\n\n"
        f"Times are seconds, sizes bytes, rates"
        " bytes per second; not-a-number and infinities are the strings `nan`, `inf` and `-inf`."
        " New optional fields may appear under the same version; a change of meaning gets a new"
        " version. `complete` is false until the sweep has ended.\n\n"
        "`busbw show FILE` prints it in any format. [JSON schemas](schemas.md) of this and all"
        " other files.\n\n"
    )
    return intro + "".join(_section(one) for one in _reachable(*structures().values()))


def _reachable(*first: type[msgspec.Struct]) -> list[type[msgspec.Struct | Enum]]:
    found: list[type[msgspec.Struct | Enum]] = [*first]
    for one in found:
        members = msgspec.structs.fields(one) if issubclass(one, msgspec.Struct) else ()
        for other in dict.fromkeys(named for field in members for named in _classes(field.type)):
            if other not in found:
                found.append(other)
    return found


def _classes(annotation: object) -> list[type[msgspec.Struct | Enum]]:
    if get_origin(annotation) is not None:
        return [one for argument in get_args(annotation) for one in _classes(argument)]
    return (
        [annotation]
        if isinstance(annotation, type) and issubclass(annotation, (msgspec.Struct, Enum))
        else []
    )


def _section(one: type[msgspec.Struct | Enum]) -> str:
    text = f"## {one.__name__}\n\n{inspect.cleandoc(one.__doc__ or '')}\n\n"
    if issubclass(one, Enum):
        return text + f"One of {', '.join(code(member.value) for member in one)}.\n\n"
    options = {name: option.help for name, option in BY_FIELD.items()} if one is SweepSpec else {}
    rows = [
        (
            code(field.name),
            _type(field.type),
            _default(field),
            options.get(field.name) or _description(field.type),
        )
        for field in msgspec.structs.fields(one)
    ]
    return text + field_table(rows)


def _description(annotation: object) -> str:
    """The description in the field's msgspec.Meta; '' where there is none."""
    return (
        next(
            (
                one.description
                for one in getattr(annotation, "__metadata__", ())
                if isinstance(one, msgspec.Meta)
            ),
            None,
        )
        or ""
    )


def _type(annotation: object) -> str:
    if annotation is type(None):
        return "null"
    if get_origin(annotation) is Annotated:
        return _type(get_args(annotation)[0])
    origin, arguments = (
        get_origin(annotation),
        [_type(argument) for argument in get_args(annotation)],
    )
    if origin is list:
        return f"list of {arguments[0]}"
    if origin is dict:
        return f"map of {arguments[0]} to {arguments[1]}"
    if origin is UnionType or arguments:
        return " or ".join(arguments)
    name = str(getattr(annotation, "__name__", annotation))
    return f"[{name}](#{name.lower()})" if _classes(annotation) else name


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return "empty"
    if field.default is msgspec.NODEFAULT:
        return "required"
    return code(msgspec.json.encode(field.default).decode())
