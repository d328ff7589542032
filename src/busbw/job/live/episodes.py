"""The verdicts of a watch over time: looks one after the other with the same verdict are one."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from busbw.core.finding import Verdict
from busbw.job.live.types import JobInterval


def key(interval: JobInterval) -> Hashable:
    """What the looks of an episode have in common."""
    return interval.verdict, interval.kind, tuple(interval.suspects), interval.cause


def unix_s(interval: JobInterval) -> float:
    return datetime.fromisoformat(interval.at).timestamp()


@dataclass(slots=True)
class Episode:
    """A verdict for some time, in Unix seconds; `look` is the last with it."""

    look: JobInterval
    begin_s: float
    end_s: float
    steps: int = 0  # that the job made meanwhile

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


class Episodes:
    """Takes looks in the order of time; `current` is the episode of the last."""

    def __init__(self) -> None:
        self.current: Episode | None = None
        self._steps: int | None = None

    def take(self, interval: JobInterval) -> Episode | None:
        """The episode that ended with this look, if one did."""
        now_s, steps = unix_s(interval), min((rank.steps for rank in interval.ranks), default=None)
        ended = self.current
        if ended:
            ended.end_s = now_s
            if steps is not None and self._steps is not None:
                ended.steps += max(0, steps - self._steps)
        self._steps = steps
        if ended and key(ended.look) == key(interval):
            ended.look = interval
            return None
        self.current = Episode(interval, now_s, now_s)
        return ended


def episodes(intervals: Iterable[JobInterval]) -> list[Episode]:
    """Those of a whole watch."""
    taker = Episodes()
    found = [taker.take(interval) for interval in sorted(intervals, key=unix_s)]
    return [episode for episode in (*found, taker.current) if episode]


UNEXPLAINED = ("", "unknown")  # causes


@dataclass(slots=True)
class KindTotal:
    """All episodes of a kind of verdict; `last` is the last of those with a cause, if any has."""

    last: Episode
    times: int = 0
    seconds: float = 0.0
    ranks: set[int] = field(default_factory=set)


class VerdictTotals:
    """How often and for how long each kind of verdict was seen, and on which ranks."""

    def __init__(self) -> None:
        self.kinds: dict[tuple[Verdict, str], KindTotal] = {}
        self._before: Hashable = None

    def add(self, episode: Episode) -> None:
        """The next episode. One with another cause than the one before is not a new time."""
        look = episode.look
        total = self.kinds.setdefault((look.verdict, look.kind), KindTotal(episode))
        of = look.verdict, look.kind, tuple(look.suspects)
        total.times += of != self._before
        self._before = of
        total.seconds += episode.seconds
        total.ranks.update(look.suspects)
        if look.cause not in UNEXPLAINED or total.last.look.cause in UNEXPLAINED:
            total.last = episode
