"""Reads a result from whatever file holds one: busbw's JSON, nccl-tests' JSON, or a log with nccl-tests' table in it."""

import json
import math
import re

from busbw.core.errors import UsageError
from busbw.core.result import Result
from busbw.views import json_repair, read_nccl_tests_json, read_nccl_tests_text, result_json

HINT = "busbw reads its own JSON (busbw.result/1), nccl-tests' JSON (-J run.json) and the text that nccl-tests prints"
LONGEST_S = 1e12  # what no operation takes; squares of samples must stay finite
RESULT_KEY = re.compile(rb'\s*\{\s*"schema"\s*:\s*"busbw\.result/')


def read(data: bytes, source: str, collective: str | None = None) -> Result:
    """The result in `data`; `source` names the file in errors, `collective` tells what neither name nor text of an old log tells.

    UsageError when the data is none of the known formats, or broken beyond what can be mended.
    """
    if not data.strip():
        raise UsageError(f"{source}: the file is empty", HINT)
    try:
        return _with_figures(_any(data, collective))
    except UsageError as error:
        raise UsageError(f"{source}: {error.message}; it begins with {_beginning(data)}", error.hint or HINT) from error


def _any(data: bytes, collective: str | None) -> Result:
    if data.lstrip()[:1] == b"{":
        return _json(data, collective)
    return read_nccl_tests_text.read(data.decode("utf-8", "replace"), collective)


def _with_figures(result: Result) -> Result:
    for run in result.training.runs if result.training else []:
        if not run.steps_s or not run.rates:
            raise UsageError(f"the training by {run.method} has no steps", HINT)
        _check_samples(run.steps_s, 0, f"the training by {run.method}")
    for number, row in enumerate(result.rows):
        where, cells = f"row {number}, of {row.size_bytes} bytes", [cell for cell in (row.out_of_place, row.in_place) if cell is not None]
        if not cells:
            raise UsageError(f"{where}: it has no figures", HINT)
        for cell in cells:
            _check_samples(cell.samples_s or [], cell.skipped, where)
    return result


def _check_samples(samples_s: list[float], skipped: int, where: str) -> None:
    if samples_s and not 0 <= skipped < len(samples_s):
        raise UsageError(f"{where}: {skipped} of {len(samples_s)} samples are skipped", HINT)
    for sample in samples_s:
        if sample < 0 or LONGEST_S < sample < math.inf:
            raise UsageError(f"{where}: a sample of {sample:g} seconds", HINT)


def _json(data: bytes, collective: str | None) -> Result:
    if RESULT_KEY.match(data):
        return result_json.read(data)
    document, whole = json_repair.loads(data.decode("utf-8", "replace"))
    if isinstance(document, dict) and str(document.get("schema", "")).startswith("busbw."):
        return result_json.read(data)
    return read_nccl_tests_json.of_document(document, whole, collective)


def _beginning(data: bytes) -> str:
    line = data.lstrip()[:200].decode("utf-8", "replace").splitlines()[0]
    return json.dumps(line[:60], ensure_ascii=False)
