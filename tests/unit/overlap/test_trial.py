"""The order of a trial, on a clock that operations of both sides advance."""

from collections.abc import Sequence

import pytest

from busbw.engines.base import Launch
from busbw.launch.control import SoloControl
from busbw.measure.progress import Progress
from busbw.overlap.together import Span
from busbw.overlap.trial import MAX_OPERATIONS, MAX_SHARE, OverlapTrial, TimedSide

US = 1e-6


class Simulated:
    """A side takes `slowdown` times as long while the other one runs."""

    def __init__(self, first_us: float, second_us: float, slowdown: float) -> None:
        self._each_s = first_us * US, second_us * US
        self._slowdown = slowdown

    def warm(self, first: Sequence[Launch], second: Sequence[Launch]) -> None:
        for launch in (*first, *second):
            launch()

    def take(self, first: Sequence[Launch], second: Sequence[Launch]) -> tuple[Span, Span]:
        spans = []
        both = len(first), len(second)
        for side in (0, 1):
            own, other = both[side], both[1 - side]
            spans.append(Span(self._end_s(side, min(own, 1), other), self._end_s(side, own, other)))
        return spans[0], spans[1]

    def _end_s(self, side: int, operations: int, others: int) -> float:
        """When a side has done so many operations: the rest of it runs alone."""
        alone_s = operations * self._each_s[side]
        both_s = self._slowdown * min(alone_s, others * self._each_s[1 - side])
        return both_s + alone_s - both_s / self._slowdown


def trial(together: Simulated) -> tuple[OverlapTrial, TimedSide, TimedSide]:
    collective, load = TimedSide("all_reduce", [lambda: None]), TimedSide("gemm", [lambda: None])
    made = OverlapTrial(together, SoloControl(), collective, load)
    made.prepare()
    made.run(10, Progress(1))
    return made, collective, load


@pytest.mark.parametrize(("first_us", "second_us"), [(100, 100), (50, 900), (2000, 40)])
def test_the_slowdown_does_not_depend_on_how_long_operations_are(
    first_us: float, second_us: float
) -> None:
    _, collective, load = trial(Simulated(first_us, second_us, slowdown=1.5))
    for side, each_us in ((collective, first_us), (load, second_us)):
        result = side.result()
        assert len(result.alone_s) == len(result.beside_s) == 10
        assert result.operation_s == pytest.approx(each_us * US)
        assert result.slowdown.ratio == pytest.approx(1.5)
        assert result.is_covered


def test_a_side_that_cannot_outlast_the_other_is_said_to_be_short() -> None:
    _, collective, load = trial(Simulated(1000 * 1000, 1, slowdown=1.5))
    assert not collective.result().is_covered
    assert load.result().is_covered
    assert load.operations == MAX_OPERATIONS
    assert len(load.background()) == 1 + MAX_SHARE * MAX_OPERATIONS
