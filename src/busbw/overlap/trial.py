"""One size: time both sides alone, and each while the other one runs all the time.

So a side is timed beside more operations of the other one than end in that time. Otherwise how much
longer it takes would depend on how long both happen to be.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice

from busbw.engines.base import Launch
from busbw.launch.control import Control
from busbw.measure.progress import Progress
from busbw.overlap.together import Span, Together
from busbw.overlap.types import OverlapSide

COLLECTIVE, LOAD = 0, 1  # the sides
TIMED_S = 2e-3  # target duration of a timed side
MAX_OPERATIONS = 64  # operations of a timed side: all are enqueued before the first runs
TRIES = 3
# Operations of the side that is not timed, as a multiple: at first of those of the timed side, at
# most of MAX_OPERATIONS.
FIRST_SHARE, MAX_SHARE = 1.5, 4

Sides = list[Sequence[Launch]]


@dataclass(slots=True)
class TimedSide:
    """What a side runs: its operations in turn, on buffers at several places.

    `share` is how many times its timed operations it runs while the other side is timed.
    """

    name: str
    launches: list[Launch]
    operations: int = 1
    share: float = FIRST_SHARE
    alone_s: list[float] = field(default_factory=list)
    beside_s: list[float] = field(default_factory=list)
    uncovered: int = 0  # samples beside the other side that ended after it

    def timed(self) -> list[Launch]:
        """The operations that are timed, after one that is not."""
        return list(islice(cycle(self.launches), 1 + self.operations))

    def background(self) -> list[Launch]:
        """Those that run while the other side is timed."""
        count = min(max(round(self.share * self.operations), 1), MAX_SHARE * MAX_OPERATIONS)
        return list(islice(cycle(self.launches), 1 + count))

    def result(self) -> OverlapSide:
        return OverlapSide(
            operations=self.operations,
            alone_s=self.alone_s,
            beside_s=self.beside_s,
            uncovered=self.uncovered,
        )


class OverlapTrial:
    """The measurement of one size on this process; all methods are collective."""

    def __init__(
        self, together: Together, control: Control, collective: TimedSide, load: TimedSide
    ) -> None:
        self._together, self._control = together, control
        self._sides = [collective, load]
        self._random = random.Random(1)  # the same on all ranks

    def prepare(self) -> None:
        """Find how many operations of each side are timed, and how many outlast them."""
        self._together.warm(*(side.launches for side in self._sides))
        for side in (COLLECTIVE, LOAD):
            tries_s = [self._alone_s(side) for _ in range(TRIES)]
            count = round(TIMED_S / max(min(tries_s), 1e-9))
            self._sides[side].operations = min(max(count, 1), MAX_OPERATIONS)
        for side in (COLLECTIVE, LOAD):
            other = self._sides[1 - side]
            while (
                self._beside(side)[1] < 0
                and other.share * other.operations < MAX_SHARE * MAX_OPERATIONS
            ):
                other.share *= 2

    def run(self, rounds: int, progress: Progress) -> None:
        """Time each side alone and beside the other, in another order in each round."""
        cases = [(side, beside) for side in (COLLECTIVE, LOAD) for beside in (False, True)]
        for _ in range(rounds):
            self._random.shuffle(cases)
            for side, beside in cases:
                timed = self._sides[side]
                if beside:
                    time_s, margin_s = self._beside(side)
                    timed.beside_s.append(time_s)
                    timed.uncovered += margin_s < 0
                else:
                    timed.alone_s.append(self._alone_s(side))
                progress.done += 1

    def _alone_s(self, side: int) -> float:
        """Seconds that a side takes alone on the slowest rank."""
        launches: Sides = [(), ()]
        launches[side] = self._sides[side].timed()
        return self._control.reduce_all([self._take(launches)[side].took_s], "max")[0]

    def _beside(self, side: int) -> tuple[float, float]:
        """Seconds that it takes beside the other one, and how much later that one ends on the rank
        where it does so first; below 0 if the side ran alone at its end.
        """
        launches: Sides = [(), ()]
        launches[side] = self._sides[side].timed()
        launches[1 - side] = self._sides[1 - side].background()
        spans = self._take(launches)
        margin_s = self._control.reduce_all([spans[1 - side].end_s - spans[side].end_s], "min")[0]
        return self._control.reduce_all([spans[side].took_s], "max")[0], margin_s

    def _take(self, launches: Sides) -> tuple[Span, Span]:
        self._control.barrier()
        return self._together.take(*launches)
