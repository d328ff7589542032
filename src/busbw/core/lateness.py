"""Which ranks of a job were late, as `busbw.pattern/1` has it."""

from typing import Annotated

import msgspec
from msgspec import Meta

CALLS, GRADIENTS = "calls", "gradients"
Count = Annotated[int, Meta(ge=0)]


class CommDelay(msgspec.Struct, omit_defaults=True, frozen=True):
    """How much longer the other members of a communicator were in its calls in each step."""

    comm: str  # its name and members
    us: float


class LateByAnother(msgspec.Struct, omit_defaults=True, frozen=True):
    """A rank that was late in the calls of communicator `comm` because it waited for the late rank
    in those of `waited_in`.
    """

    rank: Count
    comm: str
    waited_in: str


class Recurrence(msgspec.Struct, omit_defaults=True, frozen=True):
    """The steps in which something happened, if not in all; places from 0 on."""

    steps: Count  # how many
    us: float  # more than usual in each of them
    first: Count
    last: Count
    every: Count = 0  # each so many steps; 0 if not periodic


class RankDelay(msgspec.Struct, omit_defaults=True, frozen=True):
    """A rank that needed longer than the others before it communicated."""

    rank: Count
    us: Annotated[
        float, Meta(description="longer than the median of the other ranks, the mean of steps")
    ]
    low_us: Annotated[float, Meta(description="ends of the interval, at 99 % over all ranks")]
    high_us: float
    was_last: Annotated[Count, Meta(description="steps in which no rank waited less")]
    host: str = ""
    at_times: Annotated[
        Recurrence | None, Meta(description="null for a rank that was late in most steps")
    ] = None
    comms: Annotated[
        list[CommDelay], Meta(description="where the others waited, the longest first")
    ] = []
    followers: list[LateByAnother] = []
    steps_us: Annotated[
        list[float], Meta(description="`us` of each step; empty for all but the worst ranks")
    ] = []


class LongSteps(msgspec.Struct, omit_defaults=True, frozen=True):
    """Steps that were longer on all ranks, while no rank was late."""

    when: Recurrence
    in_calls: Annotated[
        float, Meta(description="which share of the excess all ranks were in calls")
    ] = 0.0


class Lateness(msgspec.Struct, omit_defaults=True, frozen=True):
    """Which ranks were late. On each rank's own clock: clocks are not compared."""

    steps_us: Annotated[list[float], Meta(description="durations, the median of the ranks")]
    ranks: Annotated[list[Count], Meta(description="that were compared")]
    world: Annotated[Count, Meta(description="ranks of the job")]
    bound_us: Annotated[
        float, Meta(description="a rank later than this in each step would have been named")
    ]
    source: Annotated[
        str, Meta(description="what the ranks waited in: `calls`, or `gradients` as DDP timed it")
    ] = CALLS
    numbers: Annotated[
        list[Count], Meta(description="of the steps, from 0 on; empty for those from `skipped` on")
    ] = []
    skipped: Annotated[Count, Meta(description="first steps that were left out")] = 0
    incomplete: Annotated[Count, Meta(description="steps that lack a call of some rank")] = 0
    parts: Annotated[
        bool, Meta(description="no step repeats: these are equal parts of the calls")
    ] = False
    at_most: Annotated[
        bool, Meta(description="calls may have run beside computation: the delays are upper bounds")
    ] = False
    late: Annotated[
        list[RankDelay], Meta(description="the ranks that were late, the worst first")
    ] = []
    hosts: Annotated[list[str], Meta(description="hosts all of whose ranks were late")] = []
    long: LongSteps | None = None
