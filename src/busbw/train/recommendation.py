"""Which exchange of a plan to recommend, given how far its figures vary from round to round."""

import math
from collections.abc import Sequence
from statistics import fmean

from busbw.accel.methods import LEAST_FIRST
from busbw.stats import rounds
from busbw.stats.rounds import Bound, Figure, Interval, broken
from busbw.train.plan_types import AS_IS, CheckRound, Exchange, Layout, LayoutRound, Plan, PlanRun

ALIKE = 0.02  # largest difference of two steps that is treated as none


def step_interval(plan: Plan, one: Exchange) -> Interval | None:
    """The interval of the predicted step, in seconds."""
    return rounds.of_mean([each.step_s for each in plan.predictions(one)])


def exposed_interval(plan: Plan, one: Exchange) -> Interval | None:
    """The interval of the exposed time, in seconds."""
    return rounds.of_mean([each.exposed_s for each in plan.predictions(one)])


def efficiency_interval(plan: Plan, one: Exchange) -> Interval | None:
    """The interval of the predicted share of alone."""
    return rounds.of_ratio([each.alone_s / each.step_s for each in plan.predictions(one)])


def share_interval(plan: Plan, one: Exchange) -> Interval | None:
    """The interval of the share of alone, of the training run if there was one."""
    return rounds.of_ratio(plan.shares(one))


def gain(plan: Plan, one: Exchange, other: Exchange) -> tuple[float, Interval | None]:
    """How many times the rate of `other` the rate of `one` is, each as a share of alone, and the
    interval.
    """
    ratios = [mine / its for mine, its in zip(plan.shares(one), plan.shares(other), strict=False)]
    return math.exp(fmean(map(math.log, ratios))), rounds.of_ratio(ratios)


def faster(plan: Plan, one: Exchange, other: Exchange) -> bool:
    """Whether `one` is faster than `other` by more than ALIKE and beyond the interval, if there
    is one.
    """
    ratio, interval = gain(plan, one, other)
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
    fine = [one for one in plan.exchanges if plan.reaches(one)]
    if not fine:
        fastest = max(plan.exchanges, key=plan.share)
        return min((one for one in plan.exchanges if not faster(plan, fastest, one)), key=_order)
    least = min(map(_order, fine))
    chosen = _simplest(plan, [one for one in fine if _order(one) == least])
    lossless = [one for one in plan.exchanges if one.loss == 0]
    if chosen.loss and lossless and not faster(plan, chosen, best := _simplest(plan, lossless)):
        return best
    return chosen


def no_slower(plan: Plan, chosen: Exchange) -> Exchange | None:
    """The fastest other exchange, if its rate is higher than that of `chosen`, so that the
    choice needs a reason.
    """
    best = max(plan.exchanges, key=plan.share)
    return best if plan.share(best) > plan.share(chosen) else None


def _order(one: Exchange) -> int:
    return LEAST_FIRST.index(one.loss)


def _simplest(plan: Plan, group: Sequence[Exchange]) -> Exchange:
    """The first listed that the fastest is not seen to beat."""
    fastest = max(group, key=plan.share)
    return next(one for one in group if not faster(plan, fastest, one))


def contradictions(plan: Plan) -> list[Bound]:
    """What the plan's figures say that cannot be: a step alone that is longer than one with DDP."""
    bounds = [bound for run in plan.runs or [_only_run(plan)] for bound in _bounds(run)]
    for one in plan.exchanges:
        checks = one.checks or ([CheckRound(plan.alone_s, one.checked_s)] if one.checked_s else [])
        if checks:
            alone = Figure("a step alone", [each.alone_s for each in checks])
            bounds.append(
                Bound(alone, Figure(f"a step with {one.method}", [each.step_s for each in checks]))
            )
    return broken(bounds)


def _bounds(run: PlanRun) -> list[Bound]:
    alone = Figure("a step alone", run.alone_s)
    stills = [
        Figure(
            f"a step on a perfect network{_sized(run, layout)}",
            [each.still_s for each in layout.rounds],
        )
        for layout in run.layouts
    ]
    return [Bound(alone, still) for still in stills]


def _sized(run: PlanRun, layout: Layout) -> str:
    return "" if layout is run.layouts[0] else f" with {layout.bucket_mb:g} MB buckets"


def _only_run(plan: Plan) -> PlanRun:
    """The run of a file without rounds."""
    return PlanRun(AS_IS, [plan.alone_s], [Layout(0.0, [LayoutRound(plan.still_s, plan.buckets)])])
