"""Whether a collective over some hosts is slower than over others, from repeated runs of both in
turn.

One run says little: on a busy machine two runs over the same hosts differ by a fifth. Runs in turn
share what disturbs the machine, and a rank test (Mann and Whitney) of them assumes no distribution.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from busbw.stats.rank_tests import p_higher

# the rate of a collective over these hosts; None if it failed
RunOver = Callable[[Sequence[int]], float | None]
SLOW = 0.85  # of the usual rate: below, hosts are slow
REPEATS = 3  # runs of each of the groups whose spread is judged
# runs of either side that can end it: if they show no difference, or if all of one side fail, which
# takes long
EARLY = 3
# runs of either side that can show a difference; 6 slower than 6 others are a chance of 1 in 924
LOOKS = (6, 9)
CHANCE = 0.01  # that any of several equal suspects is called slow at one look
# typical difference between two runs over the same hosts; above, a host at SLOW would not be seen
SPREAD = (1 - SLOW) / 2


@dataclass(frozen=True, slots=True)
class Compared:
    """`share` is the median rate relative to that of the others, 0 if the runs failed.

    `slow` is None if the runs leave it open.
    """

    share: float
    slow: bool | None


def compared(
    run: RunOver,
    suspects: Callable[[], Sequence[int]],
    others: Callable[[], Sequence[int]],
    many: int = 1,
) -> Compared:
    """Runs over hosts with a suspect and runs over others in turn, until they differ beyond chance,
    or clearly do not.

    `many` is the number of suspects that are compared so: each makes a mistake as seldom as all
    together may (Bonferroni).
    """
    slower: list[float] = []
    usual: list[float] = []
    share = 1.0
    for look in (EARLY, *LOOKS):
        while len(slower) < look:
            slower.append(run(suspects()) or 0.0)
            usual.append(run(others()) or 0.0)
        reference = statistics.median(usual)
        share = statistics.median(slower) / reference if reference else 1.0
        if look == EARLY and all(usual) and not any(slower):
            return Compared(0.0, slow=True)
        if share > (1 + SLOW) / 2:
            return Compared(share, slow=False)
        if share < SLOW and p_higher(sorted(slower), sorted(usual)) <= CHANCE / many:
            return Compared(share, slow=True)
    return Compared(share, slow=None if share < SLOW else False)


def spread(groups: Sequence[Sequence[float]]) -> float | None:
    """The typical relative difference between two runs over the same hosts, as a fraction; None
    if too few runs succeeded.
    """
    pairs = [pair for rates in groups for pair in itertools.combinations(rates, 2) if all(pair)]
    return statistics.median(math.expm1(abs(math.log(a / b))) for a, b in pairs) if pairs else None
