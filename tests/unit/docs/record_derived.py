"""Figures that a program of benchmarks/ computes from the samples of its JSON file, and of which
its text has not all.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from busbw.stats.rounds import t_quantile

PERCENT = 100.0


def by_seed(document: Any) -> Iterator[list[float]]:
    """Of trainings {method: [one object per seed]}: each measurement compared with that of the
    first method, seed by seed.

    Mean difference and mean ratio, with half of their 95 % intervals. A measurement that is a list
    counts by its last value.
    """
    methods = document.get("found") if isinstance(document, dict) else None
    if not methods:
        return
    first, *others = methods.values()
    for runs in others:
        values: list[float] = []
        for key in runs[0]:
            own, base = ([_last(run[key]) for run in some] for some in (runs, first))
            if all(math.isfinite(one) for one in own + base):
                values += _with_half([one - other for one, other in zip(own, base, strict=True)])
                values += (
                    _with_half([one / other for one, other in zip(own, base, strict=True)])
                    if all(base)
                    else []
                )
        yield values


def _last(value: Any) -> float:
    last = value[-1] if isinstance(value, list) and value else value
    return float(last) if isinstance(last, int | float) else math.nan


def _with_half(values: Sequence[float]) -> list[float]:
    """The mean, and half of its 95 % interval by Student's t."""
    if len(values) < 2:
        return [values[0]]
    return [
        statistics.fmean(values),
        t_quantile(0.025, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values)),
    ]


def fullest_paths(document: dict[str, Any]) -> Iterator[list[float]]:
    """Of net_paths.py: the share of the streams on the fullest path, the mean and the most of
    the jobs; and what all paths carried.
    """
    for one in document["spread"]:
        shares = [PERCENT * fullest / one["streams"] for fullest in one["fullest"]]
        yield [statistics.fmean(shares), max(shares), one["paths"], one["streams"]]
    jobs: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for job in document["loads"]:
        jobs.setdefault((job["paths"], sum(job["streams"])), []).append(job)
    for (paths, streams), some in jobs.items():
        carried = statistics.fmean(PERCENT * statistics.fmean(job["filled"]) for job in some)
        equal = statistics.fmean(
            PERCENT * sum(job["streams"]) / max(job["streams"]) / paths for job in some
        )
        yield [carried, equal, paths, streams]


def ratios_by_round(document: dict[str, dict[str, list[float]]]) -> Iterator[list[float]]:
    """Of link_loopback.py: the median over rounds of the ratio of each two programs, in percent."""
    for own in document.values():
        for streams in own:
            others = (other[streams] for other in document.values() if other is not own)
            ratios = (
                [one / two for one, two in zip(own[streams], other, strict=True)]
                for other in others
            )
            yield [*(PERCENT * statistics.median(some) for some in ratios), float(streams)]


DERIVED = {"paths.json": fullest_paths, "loopback.json": ratios_by_round}
