"""A user's own table of reference curves: reads it, and changes it as a whole.

A change is made from what the table holds while no other program changes it, checked, and written
to a temporary file that then replaces the table. Whatever fails before that changes nothing.
"""

import contextlib
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from busbw.core.errors import NoMeasurement, TimedOut, UsageError
from busbw.core.folder_lock import locked
from busbw.core.given_file import read_whole
from busbw.core.written_file import target_of
from busbw.model.reference.curves import (
    CurveSource,
    Reference,
    ReferenceCurve,
    ReferenceTable,
    built_in,
    with_own,
)
from busbw.reference.checked import check_curves

MAX_BYTES = 64 << 20
SCHEMA = re.compile(r"busbw\.reference/(\d+)")
VERSION = 1
LOCK_LIMIT_S = 10.0
NOT_A_TABLE = "name a file that busbw reference add wrote"
_POSITION = re.compile(r"(.*) \(byte (\d+)\)", re.DOTALL)
_PATH = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)


class _SchemaHead(msgspec.Struct):
    schema: str = ""


class _Raw(msgspec.Struct):
    sources: list[CurveSource]
    curves: list[msgspec.Raw]


def known_curves(file: Path | None) -> Reference:
    """Published curves and the user's own of a file, if there is one; UsageError for a bad file."""
    return built_in() if file is None else with_own(read(file))


def read(path: Path) -> ReferenceTable:
    """The table in a file; an empty one where there is no file. UsageError for a file that is no
    table, or holds what must not be compared with.
    """
    try:
        return parse(read_whole(path, MAX_BYTES), str(path))
    except FileNotFoundError:
        return ReferenceTable(sources=[], curves=[])
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", NOT_A_TABLE) from error


def parse(data: bytes, name: str) -> ReferenceTable:
    """The table in the content of a file; UsageError with the line."""
    _check_schema(data, name)
    try:
        raw = msgspec.json.decode(data, type=_Raw)
    except msgspec.DecodeError as error:
        raise UsageError(f"{name}: {_text(error)}", NOT_A_TABLE) from error
    placed, at = [], 0
    for part in raw.curves:
        text = bytes(part)
        at = data.index(text, at)
        where = f"{name}, line {_line_of(at, data)}"
        at += len(text)
        try:
            curve = msgspec.json.decode(text, type=ReferenceCurve)
        except msgspec.DecodeError as error:
            raise UsageError(f"{where}: {_text(error)}", NOT_A_TABLE) from error
        placed.append((f"{where}: run '{curve.run}'", curve))
    check_curves(placed, {source.key: source for source in raw.sources})
    return ReferenceTable(sources=raw.sources, curves=[curve for _, curve in placed])


def _check_schema(data: bytes, name: str) -> None:
    """UsageError for other files, and for tables of a newer busbw."""
    try:
        data.decode()
        schema = msgspec.json.decode(data, type=_SchemaHead).schema
    except msgspec.DecodeError as error:
        raise UsageError(f"{name}{_line(error, data)}: {_text(error)}", NOT_A_TABLE) from error
    except UnicodeDecodeError as error:
        line = _line_of(error.start, data)
        raise UsageError(f"{name}, line {line}: not text in UTF-8", NOT_A_TABLE) from error
    match = SCHEMA.fullmatch(schema)
    if match is None:
        raise UsageError(f"{name}: no table of reference curves", NOT_A_TABLE)
    if int(match[1]) > VERSION:
        raise UsageError(
            f"{name}: it is of the format {schema}, and this busbw reads {VERSION}",
            "read it with the busbw that wrote it, or a newer one",
        )


def _line(error: msgspec.DecodeError, data: bytes) -> str:
    match = _POSITION.fullmatch(str(error))
    return f", line {_line_of(int(match[2]), data)}" if match else ""


def _line_of(at: int, data: bytes) -> int:
    return data.count(b"\n", 0, at) + 1


def _text(error: msgspec.DecodeError) -> str:
    """The error in lower case, with the field's name before it."""
    message = _POSITION.sub(r"\1", str(error))
    match = _PATH.fullmatch(message)
    problem, field = (match[1], match[2]) if match else (message, None)
    problem = problem[:1].lower() + problem[1:]
    return f"{field.lstrip('.')}: {problem}" if field else problem


def change(path: Path, make: Callable[[ReferenceTable], ReferenceTable]) -> ReferenceTable:
    """Replace the table by what `make` makes of it; returns the new one.

    UsageError, with the table unchanged, for curves that `check_curves` refuses; NoMeasurement if
    it cannot be written, TimedOut if another program keeps it locked.
    """
    target = target_of(path)  # keeps a symbolic link
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.parent, path):
            table = make(read(path))
            parse(encoded(table), str(path))
            _replace(target, encoded(table))
    except OSError as error:
        raise NoMeasurement(
            f"{path}: {error.strerror or error}",
            "name a file that can be written, --reference FILE",
        ) from error
    return table


def encoded(table: ReferenceTable) -> bytes:
    """The table as JSON with a curve on each line, which a diff can show and an error can name."""
    sources = b",\n".join(map(msgspec.json.encode, table.sources))
    curves = b",\n".join(map(_without_defaults, table.curves))
    head = b'{"schema":"busbw.reference/%d","sources":[\n' % VERSION
    return head + sources + b'\n],"curves":[\n' + curves + b"\n]}\n"


def _without_defaults(curve: ReferenceCurve) -> bytes:
    values = msgspec.to_builtins(curve)
    return msgspec.json.encode({name: value for name, value in values.items() if value != ""})


def _locked(folder: Path, path: Path) -> contextlib.AbstractContextManager[None]:
    """One program at a time changes tables in a folder."""
    refusal = TimedOut(
        f"{path}: locked by another program for more than {LOCK_LIMIT_S:g} s", f"fuser -v {folder}"
    )
    return locked(folder, LOCK_LIMIT_S, refusal)


def _replace(target: Path, data: bytes) -> None:
    """Write the file beside its place, then rename it; an existing file's mode stays."""
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    draft = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as draft:
            draft.write(data)
            draft.flush()
            os.fsync(draft.fileno())
        Path(draft.name).chmod(mode)
        Path(draft.name).replace(target)
    except OSError:
        if draft is not None:
            Path(draft.name).unlink(missing_ok=True)
        raise
