"""Which exchange of a plan to recommend, given how far its figures vary from round to round."""

import math
from collections.abc import Sequence
from statistics import fmean

from busbw.accel.methods import LEAST_FIRST
from busbw.stats import rounds
from busbw.stats.rounds import Bound, Figure, Interval, broken
from busbw.train.plan_types import AS_IS, CheckRound, Exchange, Layout, LayoutRound, Plan, PlanRun

ALIKE = 0.02  # largest difference of two steps that is treated as none


def step_interval(plan: Plan, exchange: Exchange) -> Interval | None:
    """The interval of the predicted step, in seconds."""
    return rounds.of_mean([prediction.step_s for prediction in plan.predictions(exchange)])


def exposed_interval(plan: Plan, exchange: Exchange) -> Interval | None:
    """The interval of the exposed time, in seconds."""
    return rounds.of_mean([prediction.exposed_s for prediction in plan.predictions(exchange)])


def efficiency_interval(plan: Plan, exchange: Exchange) -> Interval | None:
    """The interval of the predicted share of alone."""
    return rounds.of_ratio(
        [prediction.alone_s / prediction.step_s for prediction in plan.predictions(exchange)]
    )


def share_interval(plan: Plan, exchange: Exchange) -> Interval | None:
    """The interval of the share of alone, of the training run if there was one."""
    return rounds.of_ratio(plan.shares(exchange))


def gain(plan: Plan, exchange: Exchange, other: Exchange) -> tuple[float, Interval | None]:
    """How many times the rate of `other` the rate of `exchange` is, each as a share of alone, and the
    interval.
    """
    ratios = [
        share / other_share
        for share, other_share in zip(plan.shares(exchange), plan.shares(other), strict=False)
    ]
    return math.exp(fmean(map(math.log, ratios))), rounds.of_ratio(ratios)


def faster(plan: Plan, exchange: Exchange, other: Exchange) -> bool:
    """Whether `exchange` is faster than `other` by more than ALIKE and beyond the interval, if there
    is one.
    """
    ratio, interval = gain(plan, exchange, other)
    return ratio > 1 + ALIKE and (interval is None or interval.low > 1)


def recommended(plan: Plan) -> Exchange | None:
    """The exchange to use; None before the first one, if the figures contradict each other, or
    if the best is `unclear`.
    """
    if not plan.exchanges or contradictions(plan) or unclear(plan):
        return None
    return _best(plan)


def unclear(plan: Plan) -> Exchange | None:
    """The exchange that would be recommended, if its share of alone is known so badly that
    nothing can be said of it.
    """
    best = _best(plan) if plan.exchanges else None
    return best if best and rounds.unclear(share_interval(plan, best)) else None


def _best(plan: Plan) -> Exchange:
    """Of those that reach the target the least lossy; of those that lose the same the fastest; if
    none reaches the target, the least lossy of those as fast as the fastest.

    Where no difference is seen, the first listed. A lossy one must be faster than all that lose
    nothing, beyond the interval.
    """
    fine = [exchange for exchange in plan.exchanges if plan.reaches(exchange)]
    if not fine:
        fastest = max(plan.exchanges, key=plan.share)
        return min(
            (exchange for exchange in plan.exchanges if not faster(plan, fastest, exchange)),
            key=_order,
        )
    least = min(map(_order, fine))
    chosen = _simplest(plan, [exchange for exchange in fine if _order(exchange) == least])
    lossless = [exchange for exchange in plan.exchanges if exchange.loss == 0]
    if chosen.loss and lossless and not faster(plan, chosen, best := _simplest(plan, lossless)):
        return best
    return chosen


def no_slower(plan: Plan, chosen: Exchange) -> Exchange | None:
    """The fastest other exchange, if its rate is higher than that of `chosen`, so that the
    choice needs a reason.
    """
    best = max(plan.exchanges, key=plan.share)
    return best if plan.share(best) > plan.share(chosen) else None


def _order(exchange: Exchange) -> int:
    return LEAST_FIRST.index(exchange.loss)


def _simplest(plan: Plan, group: Sequence[Exchange]) -> Exchange:
    """The first listed that the fastest is not seen to beat."""
    fastest = max(group, key=plan.share)
    return next(exchange for exchange in group if not faster(plan, fastest, exchange))


def contradictions(plan: Plan) -> list[Bound]:
    """What the plan's figures say that cannot be: a step alone that is longer than one with DDP."""
    bounds = [bound for run in plan.runs or [_only_run(plan)] for bound in _bounds(run)]
    for exchange in plan.exchanges:
        checks = exchange.checks or (
            [CheckRound(plan.alone_s, exchange.checked_s)] if exchange.checked_s else []
        )
        if checks:
            alone = Figure("a step alone", [check.alone_s for check in checks])
            bounds.append(
                Bound(
                    alone,
                    Figure(f"a step with {exchange.method}", [check.step_s for check in checks]),
                )
            )
    return broken(bounds)


def _bounds(run: PlanRun) -> list[Bound]:
    alone = Figure("a step alone", run.alone_s)
    stills = [
        Figure(
            f"a step on a perfect network{_sized(run, layout)}",
            [layout_round.still_s for layout_round in layout.rounds],
        )
        for layout in run.layouts
    ]
    return [Bound(alone, still) for still in stills]


def _sized(run: PlanRun, layout: Layout) -> str:
    return "" if layout is run.layouts[0] else f" with {layout.bucket_mb:g} MB buckets"


def _only_run(plan: Plan) -> PlanRun:
    """The run of a file without rounds."""
    return PlanRun(AS_IS, [plan.alone_s], [Layout(0.0, [LayoutRound(plan.still_s, plan.buckets)])])
