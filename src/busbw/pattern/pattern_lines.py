"""`busbw.pattern/1` as JSON Lines: writing, and reading what a broken file still holds."""

from collections.abc import Iterable, Iterator

import msgspec

from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.errors import UsageError
from busbw.core.pattern import (
    FUNCTIONS,
    RANKS_OF_ROW,
    SCHEMA,
    Comm,
    Header,
    Line,
    Pattern,
    PatternCall,
    PatternRow,
    lists_each,
)
from busbw.core.sizes import counted
from busbw.pattern.readers.json_recovery import BROKEN

MAX_NOTES = 5
_DECODER = msgspec.json.Decoder(Line)
_HINT = "busbw capture, and busbw show --format jsonl, write this format"


def lines(pattern: Pattern) -> Iterator[bytes]:
    """The lines of the file, each with its end."""
    pattern.header.schema = SCHEMA
    encode = msgspec.json.encode
    for line in (pattern.header, *pattern.comms, *pattern.rows, *pattern.calls):
        yield encode(line) + b"\n"


def read(source: Iterable[bytes], name: str) -> Pattern:
    """The record in these lines.

    Lines that cannot be read are counted in `header.skipped`, and the first few are named in its
    notes. UsageError if the first line is no header of this format.
    """
    numbered = enumerate(source, 1)
    _, first = next(numbered, (1, b""))
    reader = _PatternReader(Pattern(_header(first, name)))
    for number, text in numbered:
        if text.strip():
            reader.line(number, text)
    return reader.pattern


def _header(text: bytes, name: str) -> Header:
    try:
        header = _DECODER.decode(text)
    except BROKEN as error:
        raise UsageError(f"{name}: line 1 is no header of {SCHEMA}: {error}", _HINT) from error
    if not isinstance(header, Header) or header.schema != SCHEMA:
        schema = header.schema if isinstance(header, Header) else ""
        raise UsageError(f"{name}: line 1 has {schema or 'no schema'}, not {SCHEMA}", _HINT)
    return header


class _PatternReader:
    """Adds lines to a pattern.

    Ids become positions, so that a lost line loses only what refers to it.
    """

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self._comms: dict[int, int] = {}
        self._rows: dict[int, int] = {}

    def line(self, number: int, text: bytes) -> None:
        """Add a line, or count and name it."""
        try:
            self._add(_DECODER.decode(text))
        except BROKEN as error:
            header = self.pattern.header
            header.skipped += 1
            if header.skipped <= MAX_NOTES:
                header.notes.append(f"line {number}: {error}")

    def _add(self, line: Line) -> None:
        pattern, replace = self.pattern, msgspec.structs.replace
        match line:
            case PatternCall() if line.row in self._rows:
                pattern.calls.append(replace(line, row=self._rows[line.row]))
            case PatternRow() if line.comm in self._comms and line.id not in self._rows:
                comm = self._comms[line.comm]
                _check(line, pattern.comms[comm])
                self._rows[line.id] = len(pattern.rows)
                pattern.rows.append(replace(line, id=len(pattern.rows), comm=comm))
            case Comm() if line.members and not lists_each(line.members, line.ranks):
                ranks = counted(line.ranks, "rank")
                raise ValueError(f"communicator {line.id} of {ranks} does not list each once")
            case Comm() if line.id not in self._comms:
                self._comms[line.id] = len(pattern.comms)
                pattern.comms.append(replace(line, id=len(pattern.comms)))
            case PatternCall():
                raise ValueError(f"a call of row {line.row}, which was not read")
            case PatternRow():
                raise ValueError(
                    f"row {line.id} stands twice, or its communicator {line.comm} was not read"
                )
            case _:
                raise ValueError("a second header, or a communicator that stands twice")


def _check(row: PatternRow, comm: Comm) -> None:
    """ValueError for names that are in no table, and for ranks that the communicator lacks."""
    if row.function not in FUNCTIONS:
        raise ValueError(f"row {row.id} has an unknown function {row.function!r}")
    if row.dtype is not None and row.dtype not in DTYPES:
        raise ValueError(f"row {row.id} has an unknown type {row.dtype!r}")
    for name in RANKS_OF_ROW:
        rank = getattr(row, name)
        if comm.lacks(rank):
            ranks = counted(comm.ranks, "rank")
            raise ValueError(f"row {row.id} has {name} {rank}, but its communicator has {ranks}")
