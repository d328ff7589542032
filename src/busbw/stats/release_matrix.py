"""Compares releases of NCCL with the first of them, with one error rate over all comparisons."""

from collections.abc import Mapping, Sequence

from busbw.core.release_matrix import ReleaseComparison, ReleaseFailure, ReleaseMatrix
from busbw.stats.compare import Named, compare
from busbw.stats.judging import Limits
from busbw.stats.rank_tests import fewest

Runs = Mapping[tuple[str, str], Sequence[Named]]  # by collective and release
Failures = Mapping[tuple[str, str], str]
OfRelease = tuple[str, Sequence[Named]]


def rounds_needed(comparisons: int, limits: Limits) -> int:
    """The fewest runs of each release that can show a difference in so many comparisons."""
    return fewest(comparisons, limits.level)


def judge(
    collectives: Sequence[str],
    releases: Sequence[str],
    runs: Runs,
    failures: Failures,
    limits: Limits,
) -> ReleaseMatrix:
    """Each release but the first, compared with the first in each collective.

    A comparison's own rate of errors is that of `limits` divided by their number (Bonferroni).
    Within it, `compare` accounts for its sizes.
    """
    baseline, *others = releases
    share = limits.level / (len(others) * len(collectives))
    own_limits = Limits(limits.tolerance, 1 - share)
    comparisons = [
        _compared((baseline, runs[name, baseline]), (release, runs[name, release]), own_limits)
        for name in collectives
        for release in others
        if runs.get((name, baseline)) and runs.get((name, release))
    ]
    return ReleaseMatrix(
        releases=list(releases),
        collectives=list(collectives),
        rounds=max(map(len, runs.values()), default=0),
        tolerance=limits.tolerance,
        confidence=limits.confidence,
        comparisons=comparisons,
        failures=[
            ReleaseFailure(release, name, message) for (name, release), message in failures.items()
        ],
    )


def _compared(before: OfRelease, after: OfRelease, limits: Limits) -> ReleaseComparison:
    (baseline, before_runs), (release, after_runs) = before, after
    wrong = {size for _, result in after_runs for size in result.wrong_sizes()}
    sides = (baseline, release)
    comparison = compare(before_runs, after_runs, limits, sides=sides)
    return ReleaseComparison(release, comparison, sorted(wrong))
