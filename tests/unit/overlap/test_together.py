"""Two sides at the same time, in threads."""

import threading

import pytest

pytest.importorskip("torch")

from busbw.overlap.together import InThreads

LIMIT_S = 30


def test_both_sides_run_at_the_same_time() -> None:
    """Each waits for the other, which one after the other could not."""
    first_ran, second_ran = threading.Event(), threading.Event()

    def first() -> None:
        first_ran.set()
        assert second_ran.wait(LIMIT_S)

    def second() -> None:
        second_ran.set()
        assert first_ran.wait(LIMIT_S)

    first_s, second_s = InThreads().take([first], [second])
    assert first_s > 0
    assert second_s > 0


def test_a_side_runs_its_operations_in_order_and_one_without_any_takes_no_time() -> None:
    ran: list[int] = []
    first_s, second_s = InThreads().take([lambda: ran.append(1), lambda: ran.append(2)], [])
    assert ran == [1, 2]
    assert first_s > 0
    assert second_s == 0


@pytest.mark.parametrize("side", [0, 1])
def test_an_error_of_either_side_is_raised_when_both_have_ended(side: int) -> None:
    ended = threading.Event()

    def fails() -> None:
        raise RuntimeError("of this side")

    sides = ([fails], [ended.set]) if side == 0 else ([ended.set], [fails])
    with pytest.raises(RuntimeError, match="of this side"):
        InThreads().take(*sides)
    assert ended.is_set()
