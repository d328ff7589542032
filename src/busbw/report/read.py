"""Reads a result from any file that holds one: busbw's JSON or table, a signed report, nccl-tests'
JSON, rccl-tests' file, or a log with nccl-tests' table.

`check` rejects results that views cannot show: files come from other tools and newer versions, or
were edited.
"""

import json
import math
import re
from collections.abc import Iterable

from busbw.core.collectives import Collective
from busbw.core.errors import UsageError
from busbw.core.result import Cell, Result, ResultRow
from busbw.measure.formats import (
    log_lines,
    read_nccl_tests_json,
    read_nccl_tests_text,
    read_rccl_tests_file,
    read_table,
    reading,
)
from busbw.pattern.replay.kind import ReplayResult
from busbw.pattern.training.recorded_step import RecordedStep
from busbw.report import embedded, results
from busbw.report.results import AnyResult
from busbw.train.kinds import PlanResult
from busbw.train.plan_types import LOSSES, Exchange, Plan, PlanRun
from busbw.train.transports import BY_NAME as TRANSPORTS
from busbw.train.types import TrainRun

LARGEST_COUNT = (1 << 63) - 1  # NCCL counts with 64 bits
SHORTEST_S, LONGEST_S = 1e-12, 1e12  # ratios and squares of samples must stay finite
NEWER = "read it with the busbw that wrote it, or a newer one"
RESULT_KEY = re.compile(rb'\s*\{\s*"schema"\s*:\s*"busbw\.')


def check(result: AnyResult) -> None:
    """Raise UsageError, with the position, for numbers that no measurement gives."""
    if isinstance(result, ReplayResult):
        return
    if isinstance(result, Result):
        for number, row in enumerate(result.rows):
            _check_row(row, number)
        return
    for run in result.training.runs:
        _check_run(run)
        if result.training.spec.states and not run.failed and run.states is None:
            raise UsageError(f"the training by {run.method} has no memory figures", reading.FORMATS)
    if isinstance(result, PlanResult) and result.plan:
        _check_plan(result.plan)
        if result.recorded is not None:
            _check_recorded(result.recorded, result.plan)


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
        ("time", cell.time_s, "s"),
        ("algbw", cell.algbw / 1e9, "GB/s"),
        ("busbw", cell.busbw / 1e9, "GB/s"),
    ):
        if value < 0:
            raise UsageError(
                f"{where}: a {name} of {value:g} {unit}", "give the file as its program wrote it"
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


def _check_run(run: TrainRun) -> None:
    if run.failed:
        return
    where = f"the training by {run.method}"
    if not run.steps_s or not run.rates:
        raise UsageError(f"{where} has no steps", reading.FORMATS)
    _check_steps([*run.steps_s, *run.silent_s], where)
    for rate in run.rates:
        if not SHORTEST_S <= rate <= LONGEST_S / SHORTEST_S:
            raise UsageError(f"{where}: a rate of {rate:g}", reading.FORMATS)


def _check_steps(steps_s: Iterable[float], where: str) -> None:
    for step in steps_s:
        if not SHORTEST_S <= step <= LONGEST_S:
            raise UsageError(f"{where}: a step of {step:g} seconds", reading.FORMATS)


def _check_times(times_s: Iterable[float], where: str) -> None:
    for time in times_s:
        if not 0 <= time <= LONGEST_S:
            raise UsageError(f"{where}: a time of {time:g} seconds", reading.FORMATS)


def _check_plan(plan: Plan) -> None:
    if not plan.buckets:
        raise UsageError("the plan has no bucket", reading.FORMATS)
    _check_steps([plan.alone_s, plan.still_s], "the plan")
    _check_times([bucket.ready_s for bucket in plan.buckets], "the plan's buckets")
    for run in plan.runs:
        _check_plan_run(run)
    for exchange in plan.exchanges:
        _check_exchange(plan, exchange, f"the plan's exchange by {exchange.method}")


def _check_recorded(recorded: RecordedStep, plan: Plan) -> None:
    where = "the recorded step"
    if len(recorded.buckets) != len(plan.buckets):
        raise UsageError(
            f"{where}: {len(recorded.buckets)} buckets, and {len(plan.buckets)} of the plan",
            reading.FORMATS,
        )
    _check_steps([] if recorded.step_s is None else [recorded.step_s], where)
    waited_s = 0.0 if recorded.waited_s is None else recorded.waited_s
    _check_times([waited_s, *(bucket.ready_s for bucket in recorded.buckets)], where)


def _check_plan_run(run: PlanRun) -> None:
    where = f"the plan's steps over {run.transport}"
    if not run.alone_s or not run.layouts:
        raise UsageError(f"{where}: there are none", reading.FORMATS)
    _check_steps(run.alone_s, where)
    for layout in run.layouts:
        if not layout.rounds or not all(round_.buckets for round_ in layout.rounds):
            raise UsageError(f"{where}: a round without a bucket", reading.FORMATS)
        for round_ in layout.rounds:
            _check_steps([round_.still_s], where)
            _check_times([bucket.ready_s for bucket in round_.buckets], where)


def _check_exchange(plan: Plan, exchange: Exchange, where: str) -> None:
    if exchange.transport not in TRANSPORTS:
        raise UsageError(
            f"{where}: the transport is '{exchange.transport}',"
            f" this busbw knows {', '.join(TRANSPORTS)}",
            NEWER,
        )
    if not 0 <= exchange.loss < len(LOSSES):
        raise UsageError(
            f"{where}: the loss is {exchange.loss}, this busbw knows 0 to {len(LOSSES) - 1}", NEWER
        )
    bucket_s, checked_s = exchange.bucket_s, exchange.checked_s
    if exchange.rounds:
        _check_rounds(plan, exchange, where)
    elif len(bucket_s) != len(plan.buckets):
        raise UsageError(
            f"{where}: {len(bucket_s)} times for {len(plan.buckets)} buckets", reading.FORMATS
        )
    if min(bucket_s, default=-1) < 0 or (checked_s is not None and checked_s <= 0):
        raise UsageError(
            f"{where}: a bucket takes less than 0 s, or its checked step no time", reading.FORMATS
        )
    _check_times([*bucket_s, *exchange.busy_s], where)
    for check in exchange.checks:
        _check_steps([check.alone_s, check.step_s], where)
    if checked_s is not None:
        _check_steps([checked_s], where)


def _check_rounds(plan: Plan, exchange: Exchange, where: str) -> None:
    """Raise UsageError unless each round has a time for each of its buckets."""
    run = next((run for run in plan.runs if run.transport == exchange.transport), None)
    try:
        layout = run.layout(exchange.bucket_mb) if run is not None else None
    except KeyError:
        layout = None
    if layout is None:
        raise UsageError(
            f"{where}: it has rounds, but the plan has no steps for it", reading.FORMATS
        )
    for times, planned in zip(exchange.rounds, layout.rounds, strict=False):
        bucket_s, busy_s = times.bucket_s, times.busy_s
        if len(bucket_s) != len(planned.buckets) or (busy_s and len(busy_s) != len(bucket_s)):
            raise UsageError(
                f"{where}: {len(bucket_s)} times for {len(planned.buckets)} buckets",
                reading.FORMATS,
            )
        _check_times([*bucket_s, *busy_s], where)


def read(
    data: bytes, source: str, collective: str | None = None, table: int | None = None
) -> AnyResult:
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


def _read_any(data: bytes, collective: str | None, table: int | None) -> AnyResult:
    if data[:15].lower() == b"<!doctype html>":
        return _read_busbw(embedded.extract(data, table), collective)
    if read_rccl_tests_file.recognized(data):
        return read_rccl_tests_file.read(data, collective)
    if data.lstrip()[:1] != b"{":
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


def _read_busbw(data: bytes, collective: str | None) -> AnyResult:
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
