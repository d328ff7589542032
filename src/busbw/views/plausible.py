"""Checks what was read from a file, so that views can show it: files come from other tools and newer versions, or were edited."""

import math

from busbw.core.errors import UsageError
from busbw.core.planning import LOSSES, Plan
from busbw.core.result import AnyResult, Cell, PlanResult, ReplayResult, Result, Row
from busbw.core.training import TrainRun
from busbw.core.transports import BY_NAME as TRANSPORTS
from busbw.views import reading

MOST = (1 << 63) - 1  # NCCL counts with 64 bits
LONGEST_S = 1e12  # squares of samples must stay finite
NEWER = "read it with the busbw that wrote it, or a newer one"


def check(result: AnyResult) -> None:
    """UsageError, with the position, for numbers that no measurement gives."""
    if isinstance(result, ReplayResult):
        return
    if not isinstance(result, Result):
        for run in result.training.runs:
            _check_run(run)
            if result.training.spec.states and not run.failed and run.states is None:
                raise UsageError(f"the training by {run.method} has no memory figures", reading.FORMATS)
        if isinstance(result, PlanResult) and result.plan:
            _check_plan(result.plan)
        return
    for number, row in enumerate(result.rows):
        _check_row(row, number)


def _check_row(row: Row, number: int) -> None:
    for name, value in (("size", row.size_bytes), ("count", row.count), ("number of iterations", row.iters)):
        if not 0 <= value <= MOST:
            raise UsageError(f"row {number}: a {name} of {_short(value)}", reading.FORMATS)
    where, cells = f"row {number}, of {row.size_bytes} bytes", [cell for cell in (row.out_of_place, row.in_place) if cell is not None]
    if not cells:
        raise UsageError(f"{where}: it has no figures", reading.FORMATS)
    for cell in cells:
        _check_cell(cell, where)


def _short(value: int) -> str:
    """The number; a long one, which Python may refuse to print, as a power."""
    return str(value) if abs(value) <= 10 * MOST else f"{'-' if value < 0 else ''}2^{value.bit_length() - 1}"


def _check_cell(cell: Cell, where: str) -> None:
    for name, value, unit in (("time", cell.time_s, "s"), ("algbw", cell.algbw / 1e9, "GB/s"), ("busbw", cell.busbw / 1e9, "GB/s")):
        if value < 0:
            raise UsageError(f"{where}: a {name} of {value:g} {unit}", "give the file as its program wrote it")
    _check_samples(cell.samples_s or [], cell.skipped, where)


def _check_samples(samples_s: list[float], skipped: int, where: str) -> None:
    if samples_s and not 0 <= skipped < len(samples_s):
        raise UsageError(f"{where}: {skipped} of {len(samples_s)} samples are skipped", reading.FORMATS)
    for sample in samples_s:
        if sample < 0 or LONGEST_S < sample < math.inf:
            raise UsageError(f"{where}: a sample of {sample:g} seconds", reading.FORMATS)


def _check_run(run: TrainRun) -> None:
    if run.failed:
        return
    if not run.steps_s or not run.rates:
        raise UsageError(f"the training by {run.method} has no steps", reading.FORMATS)
    _check_samples(run.steps_s, 0, f"the training by {run.method}")
    for rate in run.rates:
        if not 0 <= rate < math.inf:
            raise UsageError(f"the training by {run.method}: a rate of {rate:g}", reading.FORMATS)


def _check_plan(plan: Plan) -> None:
    if not plan.buckets or not plan.alone_s > 0 or not plan.still_s > 0:
        raise UsageError("the plan has no measured step or no bucket", reading.FORMATS)
    for one in plan.exchanges:
        where = f"the plan's exchange by {one.method}"
        if one.transport not in TRANSPORTS:
            raise UsageError(f"{where}: the transport is '{one.transport}', this busbw knows {', '.join(TRANSPORTS)}", NEWER)
        if not 0 <= one.loss < len(LOSSES):
            raise UsageError(f"{where}: the loss is {one.loss}, this busbw knows 0 to {len(LOSSES) - 1}", NEWER)
        if len(one.bucket_s) != len(plan.buckets):
            raise UsageError(f"{where}: {len(one.bucket_s)} times for {len(plan.buckets)} buckets", reading.FORMATS)
        if min(one.bucket_s) < 0 or (one.checked_s is not None and one.checked_s <= 0):
            raise UsageError(f"{where}: a bucket takes less than 0 s, or its checked step no time", reading.FORMATS)
