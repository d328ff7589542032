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
    first, *other_runs = methods.values()
    for runs in other_runs:
        values: list[float] = []
        for key in runs[0]:
            values_of_run, base = (
                [_last(run[key]) for run in method_runs] for method_runs in (runs, first)
            )
            if all(math.isfinite(value) for value in values_of_run + base):
                values += _with_half(
                    [value - other for value, other in zip(values_of_run, base, strict=True)]
                )
                values += (
                    _with_half(
                        [value / other for value, other in zip(values_of_run, base, strict=True)]
                    )
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
    for row in document["spread"]:
        shares = [PERCENT * fullest / row["streams"] for fullest in row["fullest"]]
        yield [statistics.fmean(shares), max(shares), row["paths"], row["streams"]]
    jobs: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for job in document["loads"]:
        jobs.setdefault((job["paths"], sum(job["streams"])), []).append(job)
    for (paths, streams), jobs_of_shape in jobs.items():
        carried = statistics.fmean(
            PERCENT * statistics.fmean(job["filled"]) for job in jobs_of_shape
        )
        equal = statistics.fmean(
            PERCENT * sum(job["streams"]) / max(job["streams"]) / paths for job in jobs_of_shape
        )
        yield [carried, equal, paths, streams]


def ratios_by_round(document: dict[str, dict[str, list[float]]]) -> Iterator[list[float]]:
    """Of link_loopback.py: the median over rounds of the ratio of each two programs, in percent."""
    for method_ratios in document.values():
        for streams in method_ratios:
            others = (other[streams] for other in document.values() if other is not method_ratios)
            ratios = (
                [
                    value / other_value
                    for value, other_value in zip(method_ratios[streams], other, strict=True)
                ]
                for other in others
            )
            yield [
                *(PERCENT * statistics.median(round_ratios) for round_ratios in ratios),
                float(streams),
            ]


DERIVED = {"paths.json": fullest_paths, "loopback.json": ratios_by_round}
