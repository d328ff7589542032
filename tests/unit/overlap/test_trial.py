"""The order of a trial, on a clock that operations of both sides advance."""

from collections.abc import Sequence

import pytest

from busbw.engines.base import Launch
from busbw.launch.control import SoloControl
from busbw.measure.progress import Progress
from busbw.overlap.trial import MOST, ROOM, OverlapTrial, TimedSide

US = 1e-6


class Simulated:
    """A side takes `slowdown` times as long while the other one runs."""

    def __init__(self, first_us: float, second_us: float, slowdown: float) -> None:
        self._each_s = first_us * US, second_us * US
        self._slowdown = slowdown
        self.taken: list[tuple[int, int]] = []

    def warm(self, first: Sequence[Launch], second: Sequence[Launch]) -> None:
        for launch in (*first, *second):
            launch()

    def take(self, first: Sequence[Launch], second: Sequence[Launch]) -> tuple[float, float]:
        self.taken.append((len(first), len(second)))
        alone_s = [
            len(side) * each for side, each in zip((first, second), self._each_s, strict=True)
        ]
        both_s = min(self._slowdown * alone for alone in alone_s)
        if not both_s:
            return alone_s[0], alone_s[1]
        return tuple(both_s + alone - both_s / self._slowdown for alone in alone_s)  # type: ignore[return-value]


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
    assert load.operations == MOST
    assert len(load.background()) == ROOM * MOST
