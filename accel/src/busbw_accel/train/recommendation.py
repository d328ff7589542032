"""Recommends an exchange of a plan, given how far its figures vary from round to round."""

import math
from collections.abc import Sequence
from statistics import fmean

from busbw.stats import rounds
from busbw.stats.rounds import Bound, Interval, RoundValues, broken_bounds
from busbw_accel.methods import LEAST_FIRST
from busbw_accel.train.plan_types import (
    AS_IS,
    BucketLayout,
    CheckRound,
    LayoutRound,
    MeasuredExchange,
    Plan,
    PlanRun,
)

EQUAL_STEP_SHARE = 0.02  # largest difference of two steps that is treated as none


def step_interval(plan: Plan, exchange: MeasuredExchange) -> Interval | None:
    return rounds.mean_interval([prediction.step_s for prediction in plan.predictions(exchange)])


def exposed_interval(plan: Plan, exchange: MeasuredExchange) -> Interval | None:
    return rounds.mean_interval([prediction.exposed_s for prediction in plan.predictions(exchange)])


def efficiency_interval(plan: Plan, exchange: MeasuredExchange) -> Interval | None:
    """The interval of the predicted share of alone."""
    return rounds.ratio_interval(
        [prediction.alone_s / prediction.step_s for prediction in plan.predictions(exchange)]
    )


def share_interval(plan: Plan, exchange: MeasuredExchange) -> Interval | None:
    """The interval of the share of alone, of the training run if there was one."""
    return rounds.ratio_interval(plan.shares(exchange))


def gain(
    plan: Plan, exchange: MeasuredExchange, other: MeasuredExchange
) -> tuple[float, Interval | None]:
    """The rate of `exchange` divided by that of `other`, and its interval.

    Both rates are shares of alone.
    """
    pairs = zip(plan.shares(exchange), plan.shares(other), strict=False)
    ratios = [share / other_share for share, other_share in pairs]
    return math.exp(fmean(map(math.log, ratios))), rounds.ratio_interval(ratios)


def faster(plan: Plan, exchange: MeasuredExchange, other: MeasuredExchange) -> bool:
    """Whether `exchange` is faster by more than EQUAL_STEP_SHARE, and beyond any interval."""
    ratio, interval = gain(plan, exchange, other)
    return ratio > 1 + EQUAL_STEP_SHARE and (interval is None or interval.low > 1)


def recommended(plan: Plan) -> MeasuredExchange | None:
    """The exchange to use.

    None without exchanges, if the figures contradict each other, or if the best is `unclear`.
    """
    if not plan.exchanges or contradictions(plan) or unclear(plan):
        return None
    return _best(plan)


def unclear(plan: Plan) -> MeasuredExchange | None:
    """The exchange that would be recommended, if its share of alone is too uncertain to do so."""
    if not plan.exchanges:
        return None
    best = _best(plan)
    return best if rounds.is_too_wide(share_interval(plan, best)) else None


def _best(plan: Plan) -> MeasuredExchange:
    """The best exchange.

    It is the least lossy of those that reach the target, and the fastest of those that lose the
    same. If none reaches the target, it is one that is faster, beyond the interval, than all that
    lose less. Where no difference is seen, it is the first listed. A lossy exchange must be
    faster than all that lose nothing, beyond the interval.
    """
    reaching = [exchange for exchange in plan.exchanges if plan.reaches(exchange)]
    if not reaching:
        return _faster_than_less_lossy(plan)
    least = min(map(_order, reaching))
    chosen = _simplest(plan, [exchange for exchange in reaching if _order(exchange) == least])
    lossless = [exchange for exchange in plan.exchanges if exchange.loss == 0]
    if chosen.loss and lossless:
        best = _simplest(plan, lossless)
        if not faster(plan, chosen, best):
            return best
    return chosen


def _faster_than_less_lossy(plan: Plan) -> MeasuredExchange:
    """The least lossy of those as fast as the fastest; then of those as fast as that one, until it
    is faster than all that lose less.
    """
    fastest = max(plan.exchanges, key=plan.share)
    as_fast = [exchange for exchange in plan.exchanges if not faster(plan, fastest, exchange)]
    while as_fast:
        chosen = min(as_fast, key=_order)
        as_fast = [
            exchange
            for exchange in plan.exchanges
            if _order(exchange) < _order(chosen) and not faster(plan, chosen, exchange)
        ]
    return chosen


def no_slower(plan: Plan, chosen: MeasuredExchange) -> MeasuredExchange | None:
    """The fastest exchange, if its rate is higher than that of `chosen`.

    Then the choice needs a reason.
    """
    best = max(plan.exchanges, key=plan.share)
    return best if plan.share(best) > plan.share(chosen) else None


def _order(exchange: MeasuredExchange) -> tuple[int, int]:
    """The less an exchange loses, the smaller; of local steps, the fewer between exchanges."""
    every = exchange.local.every if exchange.local else 1
    return LEAST_FIRST.index(exchange.loss), every


def _simplest(plan: Plan, group: Sequence[MeasuredExchange]) -> MeasuredExchange:
    """The first listed exchange of those about as fast as the fastest."""
    fastest = max(group, key=plan.share)
    return next(exchange for exchange in group if not faster(plan, fastest, exchange))


def contradictions(plan: Plan) -> list[Bound]:
    """The impossible figures of a plan: a step alone that is longer than a step with DDP."""
    bounds = [bound for run in plan.runs or [_only_run(plan)] for bound in _bounds(run)]
    for exchange in plan.exchanges:
        checks = exchange.checks
        if not checks and exchange.checked_s:
            checks = [CheckRound(plan.alone_s, exchange.checked_s)]
        if checks:
            alone = RoundValues("a step alone", [check.alone_s for check in checks])
            steps = [check.step_s for check in checks]
            bounds.append(Bound(alone, RoundValues(f"a step with {exchange.method}", steps)))
    return broken_bounds(bounds)


def _bounds(run: PlanRun) -> list[Bound]:
    alone = RoundValues("a step alone", run.alone_s)
    bounds = []
    for layout in run.layouts:
        steps = [layout_round.still_s for layout_round in layout.rounds]
        size = "" if layout is run.layouts[0] else f" with {layout.bucket_mb:g} MB buckets"
        name = f"a step on a perfect network{size}"
        bounds.append(Bound(alone, RoundValues(name, steps)))
    return bounds


def _only_run(plan: Plan) -> PlanRun:
    """The run of a file without rounds."""
    return PlanRun(
        AS_IS, [plan.alone_s], [BucketLayout(0.0, [LayoutRound(plan.still_s, plan.buckets)])]
    )
