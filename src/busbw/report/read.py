"""Reads a result from any file that holds one: busbw's JSON, a signed report, nccl-tests' JSON,
rccl-tests' file, or a log with nccl-tests' table.
"""

import json
import re

from busbw.core.errors import UsageError
from busbw.core.result import Result
from busbw.measure.formats import (
    foreign,
    json_repair,
    read_nccl_tests_json,
    read_nccl_tests_text,
    read_rccl_tests_file,
    reading,
)
from busbw.report import embedded, result_json, sanity
from busbw.report.results import AnyResult

RESULT_KEY = re.compile(rb'\s*\{\s*"schema"\s*:\s*"busbw\.')


def read(
    data: bytes, source: str, collective: str | None = None, table: int | None = None
) -> AnyResult:
    """The result in `data`.

    `source` names the file in errors; `collective` is for logs that do not name it; `table` (from 1
    on) chooses one of several tables in a log, or results in a report.

    UsageError when the data has no known format, is broken beyond repair, is of another collective,
    or has no such table.
    """
    if not data.strip():
        raise UsageError(f"{source}: the file is empty", reading.FORMATS)
    try:
        result = _any(data, collective, table)
        sanity.check(result)
    except UsageError as error:
        if (other := foreign.kind(data)) is not None:
            raise UsageError(
                f"{source}: {other.name}, which busbw does not read", other.hint
            ) from error
        raise UsageError(
            f"{source}: {error.message}; it begins with {_beginning(data)}",
            error.hint or reading.FORMATS,
        ) from error
    return result


def _any(data: bytes, collective: str | None, table: int | None) -> AnyResult:
    if data[:15].lower() == b"<!doctype html>":
        return _own(embedded.extract(data, table), collective)
    if read_rccl_tests_file.recognized(data):
        return read_rccl_tests_file.read(data, collective)
    if data.lstrip()[:1] != b"{":
        return read_nccl_tests_text.read(data.decode("utf-8", "replace"), collective, table)
    if table not in (None, 1):
        raise UsageError(f"--table {table}: JSON holds a single table", "leave out --table")
    if RESULT_KEY.match(data):
        return _own(data, collective)
    document, whole = json_repair.loads(data.decode("utf-8", "replace"))
    if isinstance(document, dict) and str(document.get("schema", "")).startswith("busbw."):
        return _own(data, collective)
    return read_nccl_tests_json.of_document(document, whole, collective)


def _own(data: bytes, collective: str | None) -> AnyResult:
    result = result_json.read(data)
    if isinstance(result, Result):
        reading.resolve(collective, result.spec.collective, "busbw result")
    return result


def _beginning(data: bytes) -> str:
    line = data.lstrip()[:200].decode("utf-8", "replace").splitlines()[0]
    return json.dumps(line[:60], ensure_ascii=False)
