"""A tuning: which algorithm, protocol and number of channels NCCL should use for each size, and
what that gains. Times are in seconds, sizes in bytes.

`TUNE` is the kind of run that searches: its job, and the events that rank 0 reports. Its result is
that of a sweep. The functions at the end select the candidates that stay in the search, and compute
what the best one gains.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from busbw.core.finding import RunFinding
from busbw.core.pattern import PROTOCOLS
from busbw.core.result import Result
from busbw.core.shown import Shown
from busbw.core.tuning import TuningChoice
from busbw.measure.events import Event
from busbw.measure.job import RunKind, SweepJob
from busbw.stats.judging import RELEVANT_DIFFERENCE, Limits, independent, relevant
from busbw.stats.rank_tests import holm, shift

SCHEMA = "busbw.tuning/1"
EVERY_PROTOCOL = ("Tree", "Ring")  # the other algorithms have only Simple
ALGORITHMS_OF = {
    "all_reduce": ("Tree", "Ring", "NVLS", "NVLSTree"),
    "all_gather": ("Ring", "NVLS", "PAT"),
    "reduce_scatter": ("Ring", "NVLS", "PAT"),
}
EQUAL_TIME_RATIO = 1.01  # candidates whose times differ by less are taken for equally fast


def pairs(collective: str) -> list[TuningChoice]:
    """What NCCL may run a collective with, before it looks at the hardware: all but CollNet,
    which needs switches that reduce.
    """
    choices = []
    for algorithm in ALGORITHMS_OF.get(collective, ("Ring",)):
        protocols = PROTOCOLS if algorithm in EVERY_PROTOCOL else PROTOCOLS[-1:]
        choices += [TuningChoice(algorithm, protocol) for protocol in protocols]
    return choices


def variables_text(variables: Mapping[str, str]) -> str:
    """`NCCL_MIN_NCHANNELS=8 NCCL_SOCKET_NTHREADS=4`."""
    return " ".join(f"{name}={value}" for name, value in variables.items())


class Trial(msgspec.Struct, kw_only=True):
    """The search at one size.

    The samples were taken in turn after the search had ended. Each is of one turn: the median over
    its operations of the longest duration over ranks.
    """

    size_bytes: int
    own: TuningChoice  # NCCL's choice by its model, with its number of channels
    own_s: float  # its median time in the last round of the search
    candidates: int
    nodes: int  # hosts of the communicator as NCCL counts them: those that NVLink joins may be one
    # had the shortest time of `candidates`; None if that was NCCL's own choice
    choice: TuningChoice | None = None
    default_s: list[float] = []
    choice_s: list[float] = []


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """A choice compared with NCCL's: both medians, and the ratio of the times (choice / default)
    with its interval.

    `p` is adjusted for all sizes of the tuning.
    """

    default_s: float
    choice_s: float
    ratio: float
    low: float | None = None
    high: float | None = None
    p: float = 1.0


class TunedSize(msgspec.Struct, kw_only=True):
    """One size: NCCL's choice and its time, the best candidate, and what it gains."""

    size_bytes: int
    own: Annotated[
        TuningChoice | None,
        Meta(description="null with variables but without a table: it is not known then"),
    ]
    own_s: float
    candidates: int
    nodes: Annotated[
        int,
        Meta(
            description="hosts of the communicator as NCCL counts them: those that NVLink joins"
            " may be one"
        ),
    ] = 0
    choice: TuningChoice | None = None
    gain: Annotated[Gain | None, Meta(description="with variables, that of the check")] = None
    check: Annotated[Gain | None, Meta(description="gain in the check with new ranks")] = None
    kept: Annotated[bool, Meta(description="whether the table has the choice")] = False
    reason: Annotated[str, Meta(description="why the table does not have it")] = ""

    @property
    def expected_s(self) -> float:
        """The time with the choice of the table, or NCCL's own."""
        return self.gain.choice_s if self.kept and self.gain else self.own_s


class TunedSystem(msgspec.Struct, frozen=True, kw_only=True):
    """What a table is for. `nccl` is NCCL's version number, 0 for the sim engine."""

    device: str
    ranks: int
    hosts: int
    nccl: int
    network: str = ""


class Tuning(Shown, msgspec.Struct, tag=SCHEMA, tag_field="schema", kw_only=True):
    """The outcome of a tuning."""

    collective: str
    system: TunedSystem
    sizes: list[TunedSize] = []
    variables: dict[str, str] = {}
    dropped: Annotated[
        dict[str, str], Meta(description="candidates that failed, with the reason")
    ] = {}
    findings: Annotated[
        list[RunFinding], Meta(description="about the machines during the check")
    ] = []
    file: str = ""

    def kept(self) -> list[TunedSize]:
        """The sizes for which the table has a rule."""
        return [size for size in self.sizes if size.kept]


class TuneJob(SweepJob, frozen=True, kw_only=True, omit_defaults=True, tag="tune"):
    """The search for the fastest algorithm, protocol and number of channels of each size, at most
    `seconds` for each.

    `done` are sizes to leave out, `dropped` candidates that have failed.
    """

    seconds: float = 6.0
    done: list[int] = msgspec.field(default_factory=list)
    dropped: list[TuningChoice] = msgspec.field(default_factory=list)


class Trying(Event, tag="trying"):
    """The next operations of a tuning use this choice (None: NCCL's own). If the job fails, this
    tells which choice was running.
    """

    size_bytes: int
    choice: TuningChoice | None


class Tried(Event, tag="tried"):
    """The search at one size has ended."""

    trial: Trial


TUNE = RunKind(TuneJob, Result, ("busbw.tune.job", "tune"), (Trying, Tried))
Candidate = TypeVar("Candidate")


def fastest(times_s: Mapping[Candidate, Sequence[float]], keep: int) -> list[Candidate]:
    """The `keep` candidates with the shortest median times."""
    return sorted(times_s, key=lambda candidate: median(times_s[candidate]))[:keep]


def plainest(times_s: Mapping[TuningChoice | None, Sequence[float]]) -> TuningChoice | None:
    """Of the fastest candidates, NCCL's own choice (None), else NCCL's number of channels, else
    the fewest: they leave room for others.
    """
    limit_s = EQUAL_TIME_RATIO * min(map(median, times_s.values()))
    alike = [choice for choice, times in times_s.items() if median(times) <= limit_s]
    return min(alike, key=lambda choice: (choice is not None, choice.channels if choice else 0))


def compute_gain(default_s: Sequence[float], choice_s: Sequence[float], confidence: float) -> Gain:
    """What a choice gains, by samples not used to choose it; `p` is that of this size only."""
    change = shift(independent(default_s), independent(choice_s), confidence)
    return Gain(
        default_s=median(default_s),
        choice_s=median(choice_s),
        ratio=change.ratio,
        low=change.low,
        high=change.high,
        p=change.p,
    )


def adjust_p_values(ps: Sequence[float], sizes: int) -> list[float]:
    """Holm's p-values for a tuning of so many sizes, where `ps` are those measured so far."""
    unmeasured = [1.0] * (sizes - len(ps))
    return holm([*ps, *unmeasured])[: len(ps)]


def is_faster(gain: Gain, limits: Limits) -> bool:
    """Whether the choice is faster: significant over all sizes, and by enough to matter (2 %)."""
    return gain.p <= limits.level and gain.ratio <= 1 / relevant(limits)


def slower_than_allowed(ratios: Sequence[float]) -> bool:
    """Whether any of these ratios of times is above 1 by over 2 %."""
    return any(ratio > 1 + RELEVANT_DIFFERENCE for ratio in ratios)


def geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
