"""How long calls take together if they may overlap, as a range: for `busbw predict --together`.

Calls of one communicator, or of one stream, follow one another: a chain. The time is that of the
longest chain, and each call outside it adds (r - 1) of its own time. r is the measured ratio of a
pair of functions: 1 if both run as fast together as alone, 2 if it takes as long as one after the
other. For a pair that was not measured, r is from 1 to 2. Calls never take less time than their
bytes need on the links that they share.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from busbw.core.errors import UsageError, unknown
from busbw.core.pattern import FUNCTIONS

ALONE, APART = 1.0, 2.0
MAX_RATIO = 10.0
EXAMPLE = "--together all_reduce+all_gather=1.4"
_RATIO = re.compile(r"([^+=]+)\+([^+=]+)=([0-9]{1,3}(?:\.[0-9]{1,9})?)", re.ASCII)
Ratios = Mapping[frozenset[str], float]  # by pair of functions; one name: both have it


@dataclass(frozen=True, slots=True)
class Work:
    """Calls of one row on one rank: their time in seconds if nothing else runs, and what their
    bytes take on the GPU's links and on the NIC.

    `chains` are names of what follows one another: the communicator, and the stream if known.
    """

    function: str
    chains: tuple[str, ...]
    time_s: float
    gpu_s: float = 0.0
    nic_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The least and the most that calls take together, in seconds."""

    least_s: float = 0.0
    most_s: float = 0.0

    def __add__(self, other: "TimeRange") -> "TimeRange":
        return TimeRange(self.least_s + other.least_s, self.most_s + other.most_s)

    def times(self, factor: float) -> "TimeRange":
        """The span of `factor` such groups of calls, one after the other."""
        return TimeRange(factor * self.least_s, factor * self.most_s)


def apart_s(works: Sequence[Work]) -> float:
    """The time of all works, one after the other, in seconds."""
    return sum(work.time_s for work in works)


def span(
    works: Sequence[Work], ratios: Ratios, *, ran_together: bool, others_nic_s: float = 0.0
) -> TimeRange:
    """How long a rank's works take.

    `ran_together` says whether they are known to run at the same time, else they may follow one
    another. `others_nic_s` is what the rank's NIC carries for other ranks meanwhile, if they run at
    the same time.
    """
    longest = _longest_chain(works)
    inside = [work for work in works if longest in work.chains]
    outside = [work for work in works if longest not in work.chains]
    least_s = most_s = apart_s(inside)
    for work in outside:
        least, most = _ratio(work, inside, ratios)
        least_s += (least - 1) * work.time_s
        most_s += (most if ran_together else max(most, APART)) * work.time_s - work.time_s
    nic_s = sum(work.nic_s for work in works)
    shared_s = others_nic_s if nic_s else 0.0
    on_links = [sum(work.gpu_s for work in works), nic_s]
    if ran_together:
        on_links.append(nic_s + shared_s)
    least_s = max(least_s, *on_links)
    return TimeRange(least_s, max(least_s, most_s + shared_s))


def _longest_chain(works: Sequence[Work]) -> str:
    times_s: dict[str, float] = {}
    for work in works:
        for chain in work.chains:
            times_s[chain] = times_s.get(chain, 0.0) + work.time_s
    return max(times_s, key=lambda chain: times_s[chain], default="")


def _ratio(work: Work, inside: Sequence[Work], ratios: Ratios) -> tuple[float, float]:
    """The range of r of a work beside the works `inside` the longest chain."""
    functions = {other.function for other in inside}
    measured = [ratios.get(frozenset((work.function, name))) for name in functions]
    least = [ALONE if ratio is None else ratio for ratio in measured]
    most = [APART if ratio is None else ratio for ratio in measured]
    return min(least, default=ALONE), max(most, default=APART)


def parse_ratios(texts: Sequence[str]) -> Ratios:
    """The ratios that texts such as `all_reduce+all_gather=1.4` give; UsageError for other text, or
    two ratios of a pair.
    """
    ratios: dict[frozenset[str], float] = {}
    for text in texts:
        match = _RATIO.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f"--together '{text}': not two functions and a ratio", f"write it like {EXAMPLE}"
            )
        pair, ratio = frozenset((match.group(1), match.group(2))), float(match.group(3))
        for name in sorted(pair - set(FUNCTIONS)):
            raise unknown("function", name, {known: known for known in FUNCTIONS}, "--together: ")
        if not ALONE <= ratio <= MAX_RATIO:
            raise UsageError(
                f"--together {text}: the ratio is between {ALONE:g} and {MAX_RATIO:g}",
                "1 is as fast as alone, 2 is one after the other",
            )
        if ratios.setdefault(pair, ratio) != ratio:
            raise UsageError(f"--together {text}: the pair has two ratios", "give one of them")
    return ratios
