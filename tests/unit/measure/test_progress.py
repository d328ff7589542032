"""The time limit of a step: the given limit, or more if the previous size took that long."""

import itertools
import math
from functools import partial
from operator import length_hint

import pytest

from busbw.measure.progress import LIMIT_FACTOR, Pace, Progress


def test_a_batch_counts_while_it_is_filled_or_drained() -> None:
    filled, drained = Progress(8), Progress(8)
    ends: list[float] = []
    remaining = itertools.repeat(True, 3)
    filled.batch_count = partial(len, ends)
    drained.batch_count = partial(length_hint, remaining)
    before = filled.completed(), drained.completed()
    ends.append(0.1)
    next(remaining)
    assert filled.completed() != before[0]
    assert drained.completed() != before[1]


def test_no_limit_is_infinite() -> None:
    assert Pace(0).allowed_s("timing", Progress(8)) == math.inf


def test_small_sizes_have_the_limit_however_many_operations() -> None:
    pace, before = Pace(60), Progress(4 << 20)
    before.done = 2000
    pace.learn("timing", before, 100.0)
    assert pace.allowed_s("timing", Progress(8 << 20)) == 60


def test_a_slow_size_gives_the_next_one_more() -> None:
    pace, before = Pace(5), Progress(1 << 30)
    before.done = 2
    pace.learn("warm-up", before, 8.0)  # 4 s each
    assert pace.allowed_s("warm-up", Progress(2 << 30)) == LIMIT_FACTOR * 8
    assert pace.allowed_s("timing", Progress(1 << 30)) == LIMIT_FACTOR * 4
    assert pace.allowed_s("timing", Progress(1 << 30, operations=20)) == LIMIT_FACTOR * 4 * 20
    assert pace.allowed_s("verify", Progress(8 << 20)) == LIMIT_FACTOR * 4


def test_the_first_step_of_a_large_size_may_be_slow() -> None:
    assert Pace(60).allowed_s("warm-up", Progress(8 << 30)) == pytest.approx(85.9, abs=0.1)
    assert Pace(60).allowed_s("warm-up", None) == 60
