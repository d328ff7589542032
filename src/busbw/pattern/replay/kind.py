"""The kind of run that replays a pattern: job, result, and what rank 0 reports."""

from busbw.core.result import Outcome
from busbw.measure.events import Event
from busbw.measure.job import Job, RunKind
from busbw.pattern.replay.types import Replay, ReplaySpec


class ReplayJob(Job, frozen=True, kw_only=True, omit_defaults=True, tag="replay"):
    """A replay of a pattern, whose file process 0 reads."""

    replay: ReplaySpec


class ReplayResult(Outcome, tag="busbw.replay/1"):
    """The result of replaying a pattern."""

    replay: Replay

    @property
    def measured(self) -> int:
        return sum(row.times is not None for row in self.replay.rows)


class Played(Event, tag="played"):
    """A replay is measured."""

    replay: Replay

    def add_to(self, result: Outcome) -> bool:
        assert isinstance(result, ReplayResult)
        result.replay = self.replay
        return True


REPLAY = RunKind(ReplayJob, ReplayResult, ("busbw.pattern.replay.job", "replay"), (Played,))
