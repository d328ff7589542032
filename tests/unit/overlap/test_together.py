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

    spans = InThreads().take([first], [second])
    assert all(span.end_s > 0 for span in spans)


def test_a_side_is_timed_after_its_first_operation_and_one_without_any_takes_no_time() -> None:
    ran: list[int] = []
    first, second = InThreads().take([lambda: ran.append(1), lambda: ran.append(2)], [])
    assert ran == [1, 2]
    assert 0 < first.start_s < first.end_s
    assert second == (0, 0)


@pytest.mark.parametrize("side", [0, 1])
def test_an_error_of_either_side_is_raised_when_both_have_ended(side: int) -> None:
    ended = threading.Event()

    def fails() -> None:
        raise RuntimeError("of this side")

    sides = ([fails], [ended.set]) if side == 0 else ([ended.set], [fails])
    with pytest.raises(RuntimeError, match="of this side"):
        InThreads().take(*sides)
    assert ended.is_set()
