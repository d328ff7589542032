"""The kind of run that searches the fastest algorithms: job, and what rank 0 reports.

Its result is that of a sweep.
"""

import msgspec

from busbw.core.result import Result
from busbw.core.tuning import Choice
from busbw.measure.events import Event
from busbw.measure.job import SweepJob
from busbw.measure.kind import Kind
from busbw.tune.types import Trial


class TuneJob(SweepJob, frozen=True, kw_only=True, omit_defaults=True, tag="tune"):
    """The search for the fastest algorithm, protocol and number of channels of each size, at most
    `seconds` for each.

    `done` are sizes to leave out, `dropped` candidates that have failed.
    """

    seconds: float = 6.0
    done: list[int] = msgspec.field(default_factory=list)
    dropped: list[Choice] = msgspec.field(default_factory=list)


class Trying(Event, tag="trying"):
    """The next operations of a tuning use this choice (None: NCCL's own), so that a failure has
    a name.
    """

    size_bytes: int
    choice: Choice | None


class Tried(Event, tag="tried"):
    """The search at one size has ended."""

    trial: Trial


TUNE = Kind(TuneJob, Result, ("busbw.tune.job", "tune"), (Trying, Tried))
