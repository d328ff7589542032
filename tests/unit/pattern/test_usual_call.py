"""Which of different calls is the usual one."""

from hypothesis import given
from hypothesis import strategies as st

from busbw.pattern.usual_call import before, left_out, resized, usual

STEP = ["broadcast of 8 float", "all_reduce of 64 float"]
CALLS = (3 * STEP + ["all_reduce of 2 float"]) * 3  # metrics each third step


def test_what_comes_after_calls_that_repeat() -> None:
    assert usual(CALLS) == ("broadcast of 8 float", "all_reduce of 64 float")
    assert usual(CALLS + 3 * STEP) == ("all_reduce of 2 float", "broadcast of 8 float")
    assert usual(["barrier of 1 int", *CALLS])[0] == "broadcast of 8 float"
    assert usual(STEP) == ("", "")


def test_the_rank_that_left_out_a_call_made_the_next_one() -> None:
    expected = usual(CALLS + 3 * STEP)
    made = {0: "all_reduce of 2 float", 1: "broadcast of 8 float"}
    assert left_out(made, *expected) == [1]
    assert left_out(made | {1: "all_gather of 2 float"}, *expected) == []
    assert left_out({0: "a of 1", 1: "b of 1"}, "", "") == []


def test_the_rank_that_is_unlike_before_has_another_size() -> None:
    assert resized({0: "all_reduce of 2 float", 1: "all_reduce of 3 float"}, STEP[1]) == []
    made = {0: "all_reduce of 64 float", 1: "all_reduce of 65 float"}
    assert resized(made, STEP[1]) == [1]
    assert resized(made | {1: "broadcast of 64 float"}, STEP[1]) == []


def test_calls_before_a_gap_are_not_known() -> None:
    assert before(5, {1: "a", 3: "c", 4: "d", 5: "e"}) == ["c", "d"]


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=5), st.integers(3, 6))
def test_a_sequence_goes_on_as_it_repeats(period: list[str], times: int) -> None:
    following = usual(period * times)
    assert following == (period[0], (period * 2)[1])
