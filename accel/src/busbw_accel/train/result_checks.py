"""Rejects trainings and plans that views cannot show: files may come from newer versions, or were
edited.
"""

from collections.abc import Iterable

from busbw.core.errors import UsageError
from busbw.measure.formats import reading
from busbw.pattern.training.recorded_step import RecordedStep
from busbw_accel.train.kinds import PlanResult, TrainResult
from busbw_accel.train.plan_types import LOSSES, MeasuredExchange, Plan, PlanRun
from busbw_accel.train.transports import BY_NAME as TRANSPORTS
from busbw_accel.train.types import TrainRun

SHORTEST_S, LONGEST_S = 1e-12, 1e12  # ratios and squares of samples must stay finite
NEWER = "read it with the busbw that wrote it, or a newer one"


def check(result: TrainResult | PlanResult) -> None:
    """Raise UsageError, with the position, for numbers that no measurement gives."""
    for run in result.training.runs:
        _check_run(run)
        if result.training.spec.states and not run.failed and run.states is None:
            raise UsageError(f"the training by {run.method} has no memory figures", reading.FORMATS)
    if isinstance(result, PlanResult) and result.plan:
        _check_plan(result.plan)
        if result.recorded is not None:
            _check_recorded(result.recorded, result.plan)


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


def _check_exchange(plan: Plan, exchange: MeasuredExchange, where: str) -> None:
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


def _check_rounds(plan: Plan, exchange: MeasuredExchange, where: str) -> None:
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
        _check_times([*bucket_s, *busy_s, times.change_s, times.change_busy_s], where)
