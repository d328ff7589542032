"""Reads what rccl-tests writes to a file (-x FILE, with -Z json or csv).

There is a record for each placement of each size. JSON has one object a line, or all in a list. A
build without MPI has `gpus` instead of nodes and ranks. Source: Reporter::addResult in rccl-tests'
src/common.cu.
"""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from busbw.core.collectives import Collective
from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.errors import UsageError
from busbw.core.result import Cell, Result, ResultRow
from busbw.core.sweep import SweepSpec
from busbw.measure.formats import reading
from busbw.ui.number_formats import op_of_column

MARK = b"numCycle"
# The keys of JSON, by the titles of CSV.
TITLES = {
    "inplace": "inPlace",
    "algbw": "algBw",
    "busbw": "busBw",
    "#wrong": "wrong",
    "collective": "name",
}
HINT = "give the file that rccl-tests wrote with -x FILE -Z json"


class RcclTestsRow(msgspec.Struct):
    """One placement: microseconds and GB/s. CSV has numbers as text."""

    name: str
    size: int
    type: str
    redop: str
    inPlace: int  # rccl-tests' own names
    time: float
    algBw: float
    busBw: float
    wrong: str | int = "N/A"
    ranks: int = 0
    gpus: int = 0
    numCycle: int = 0


def recognized(data: bytes) -> bool:
    start = data[:200].lstrip()
    return MARK in start and (start[:1] in (b"{", b"[") or start.startswith(MARK))


def read(data: bytes, collective: str | None = None) -> Result:
    """The run in the file.

    UsageError if a record is broken, or if records are of several collectives.
    """
    text = data.decode("utf-8", "replace")
    objects = _csv(text) if text.lstrip().startswith("numCycle") else _json(text)
    try:
        records = [msgspec.convert(fields, RcclTestsRow, strict=False) for fields in objects]
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise UsageError(f"rccl-tests' file: {error}", HINT) from error
    names = {record.name for record in records}
    if len(names) != 1:
        raise UsageError(
            f"rccl-tests' file: it has records of {', '.join(sorted(names)) or 'nothing'}", HINT
        )
    name = reading.collective_of(names.pop())
    collective_row = reading.resolve(collective, name, "rccl-tests' file")
    rows = list(_rows(records, collective_row))
    sizes = [row.size_bytes for row in rows]
    fields: dict[str, Any] = {"min_bytes": min(sizes), "max_bytes": max(sizes)}
    fields |= {"step_bytes": 0, "iters": 0, "warmup_iters": 0} | reading.series(rows)
    spec = SweepSpec(collective=collective_row.name, **fields)
    return Result(tool="rccl-tests", spec=spec, rows=rows, complete=True)


def _json(text: str) -> Iterator[Any]:
    if text.lstrip()[:1] == "[":
        value = json.loads(text)
        yield from value if isinstance(value, list) else [value]
        return
    for line in text.splitlines():
        if line.strip():
            yield json.loads(line)


def _csv(text: str) -> Iterator[Any]:
    for line in csv.DictReader(io.StringIO(text), skipinitialspace=True):
        yield {
            TITLES.get(title, title): value
            for title, value in line.items()
            if isinstance(title, str) and value is not None
        }


def _rows(records: list[RcclTestsRow], collective: Collective) -> Iterator[ResultRow]:
    rows: dict[tuple[object, ...], ResultRow] = {}
    for record in records:
        key = (record.numCycle, record.size, record.type, record.redop)
        if key not in rows:
            dtype, op = reading.element_type(record.type), op_of_column(collective, record.redop)
            rows[key] = ResultRow(
                record.size, _count(record, collective), dtype, op, -1, None, None, 0
            )
        wrong_text = str(record.wrong)
        wrong = int(wrong_text) if wrong_text.isdecimal() and len(wrong_text) < 19 else None
        cell = Cell(record.time / 1e6, record.algBw * 1e9, record.busBw * 1e9, wrong)
        setattr(rows[key], "in_place" if record.inPlace else "out_of_place", cell)
    yield from rows.values()


def _count(record: RcclTestsRow, collective: Collective) -> int:
    """NCCL's count argument: the size is that of the larger buffer."""
    dtype, ranks = DTYPES.get(record.type), record.ranks or record.gpus
    parts = ranks if collective.algbw_multiple(3) > 1 else 1
    return record.size // dtype.itemsize // parts if dtype and parts else 0
