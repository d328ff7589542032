"""Reads a result from any file that holds one: busbw's JSON or table, a signed report, nccl-tests'
JSON, rccl-tests' file, or a log with nccl-tests' table.

`check` rejects results that views cannot show: files come from other tools and newer versions, or
were edited.
"""

import json
import math
import re

from busbw.core.collectives import Collective
from busbw.core.errors import UsageError
from busbw.core.extensions import NotInstalled
from busbw.core.result import Cell, Outcome, Result, ResultRow
from busbw.measure.formats import (
    log_lines,
    read_nccl_tests_json,
    read_nccl_tests_text,
    read_rccl_tests_file,
    read_table,
    reading,
)
from busbw.report import embedded, results

LARGEST_COUNT = (1 << 63) - 1  # NCCL counts with 64 bits
LONGEST_S = 1e12  # ratios and squares of samples must stay finite
RESULT_KEY = re.compile(rb'\s*\{\s*"schema"\s*:\s*"busbw\.')


def check(result: Outcome) -> None:
    """Raise UsageError, with the position, for numbers that no measurement gives."""
    if isinstance(result, Result):
        for number, row in enumerate(result.rows):
            _check_row(row, number)
        return
    results.kind_of(result).check(result)


def _check_row(row: ResultRow, number: int) -> None:
    for name, value in (
        ("size", row.size_bytes),
        ("count", row.count),
        ("number of iterations", row.iters),
    ):
        if not 0 <= value <= LARGEST_COUNT:
            raise UsageError(f"row {number}: a {name} of {_short_text(value)}", reading.FORMATS)
    where = f"row {number}, of {row.size_bytes} bytes"
    cells = [cell for cell in (row.out_of_place, row.in_place) if cell is not None]
    if not cells:
        raise UsageError(f"{where}: it has no figures", reading.FORMATS)
    for cell in cells:
        _check_cell(cell, where)


def _short_text(value: int) -> str:
    """The number; a long one, which Python may refuse to print, as a power of two."""
    if abs(value) <= 10 * LARGEST_COUNT:
        return str(value)
    sign = "-" if value < 0 else ""
    return f"{sign}2^{value.bit_length() - 1}"


def _check_cell(cell: Cell, where: str) -> None:
    for name, value, unit in (
        ("a time", cell.time_s, "s"),
        ("an algbw", cell.algbw / 1e9, "GB/s"),
        ("a busbw", cell.busbw / 1e9, "GB/s"),
    ):
        if value < 0:
            raise UsageError(
                f"{where}: {name} of {value:g} {unit}", "give the file as its program wrote it"
            )
    _check_samples(cell.samples_s or [], cell.skipped, where)


def _check_samples(samples_s: list[float], skipped: int, where: str) -> None:
    if samples_s and not 0 <= skipped < len(samples_s):
        raise UsageError(
            f"{where}: {skipped} of {len(samples_s)} samples are skipped", reading.FORMATS
        )
    for sample in samples_s:
        if sample < 0 or LONGEST_S < sample < math.inf:
            raise UsageError(f"{where}: a sample of {sample:g} seconds", reading.FORMATS)


def read(
    data: bytes, source: str, collective: str | None = None, table: int | None = None
) -> Outcome:
    """The result in `data`.

    `source` names the file in errors. `collective` is for logs that do not name it. `table`, from 1
    on, chooses one of several tables in a log, or of several results in a report.

    UsageError if the data has no known format, is broken beyond repair, is of another collective,
    or has no such table.
    """
    if not data.strip():
        raise UsageError(f"{source}: the file is empty", reading.FORMATS)
    try:
        if log_lines.is_binary(data):
            raise UsageError("a binary file, which no program of a benchmark writes", "")
        result = _read_any(data, collective, table)
        check(result)
    except NotInstalled as error:
        raise UsageError(f"{source}: {error.message}", error.hint) from error
    except UsageError as error:
        log_kind = log_lines.kind(data)
        if log_kind is not None:
            raise UsageError(
                f"{source}: {log_kind.name}, which busbw does not read", log_kind.hint
            ) from error
        raise UsageError(
            f"{source}: {error.message}; it begins with {_beginning(data)}",
            error.hint or reading.FORMATS,
        ) from error
    return result


def _read_any(data: bytes, collective: str | None, table: int | None) -> Outcome:
    if data[:15].lower() == b"<!doctype html>":
        return _read_busbw(embedded.extract(data, table), collective)
    if read_rccl_tests_file.recognized(data):
        return read_rccl_tests_file.read(data, collective)
    if data.lstrip()[:1] != b"{":
        if data.lstrip()[:1] == b"[" and _is_json(data):
            raise UsageError("a JSON list that busbw does not know", reading.FORMATS)
        if read_table.recognized(data):
            return read_table.read(data.decode("utf-8", "replace"), collective, table)
        return read_nccl_tests_text.read(data.decode("utf-8", "replace"), collective, table)
    if table not in (None, 1):
        raise UsageError(f"--table {table}: JSON holds a single table", "leave out --table")
    if RESULT_KEY.match(data):
        return _read_busbw(data, collective)
    document, intact = log_lines.loads(data.decode("utf-8", "replace"))
    if isinstance(document, dict) and str(document.get("schema", "")).startswith("busbw."):
        return _read_busbw(data, collective)
    return read_nccl_tests_json.of_document(document, intact, collective)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _read_busbw(data: bytes, collective: str | None) -> Outcome:
    result = results.read(data)
    if isinstance(result, Result):
        row = reading.resolve(collective, result.spec.collective, "busbw result")
        if result.tool.startswith("busbw"):
            _refuse_changed(result, row)
    return result


def _refuse_changed(result: Result, collective: Collective) -> None:
    """UsageError for a busbw above what follows from algbw: busbw writes all digits."""
    ranks = result.world.ranks if result.world.devices else 0
    factor = float(collective.bus_factor(ranks)) if ranks > 1 else math.inf
    for row in result.rows:
        for cell in filter(None, (row.out_of_place, row.in_place)):
            if cell.busbw > 1.01 * factor * cell.algbw:
                raise UsageError(
                    f"the row of {row.size_bytes} bytes: a busbw of {cell.busbw / 1e9:.6g} GB/s,"
                    f" which by its algbw is {factor * cell.algbw / 1e9:.6g}",
                    "give the file as busbw wrote it",
                )


def _beginning(data: bytes) -> str:
    line = data.lstrip()[:200].decode("utf-8", "replace").splitlines()[0]
    return json.dumps(line[:60], ensure_ascii=False)
