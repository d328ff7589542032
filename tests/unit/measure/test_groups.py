"""NCCL_TESTS_SPLIT and NCCL_TESTS_SPLIT_MASK as nccl-tests means them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.measure.groups import color

PROCESSES = range(10)


def colors(value: str) -> list[int]:
    return [color(process, {"NCCL_TESTS_SPLIT": value}) for process in PROCESSES]


@pytest.mark.parametrize("form", ["AND 0x3", "and 3", "&3", "& 0b11", "AND3", "AND 03", "And\t3", "AND 3x"])
def test_and(form: str) -> None:
    assert colors(form) == [process & 3 for process in PROCESSES]


@pytest.mark.parametrize("form", ["OR 0xc", "or 12", "|12", "| 0b1100", "OR 014"])
def test_or(form: str) -> None:
    assert colors(form) == [process | 12 for process in PROCESSES]


@pytest.mark.parametrize("form", ["MOD 4", "mod4", "%4", "% 0x4", "MOD 0b100", "MOD 04"])
def test_mod(form: str) -> None:
    assert colors(form) == [process % 4 for process in PROCESSES]


@pytest.mark.parametrize("form", ["DIV 4", "/4", "/ 0x4", "div 0b100"])
def test_div(form: str) -> None:
    assert colors(form) == [process // 4 for process in PROCESSES]


@pytest.mark.parametrize("form", ["", "XOR 3", "4", "AND", "MOD", "?"])
def test_what_cannot_be_parsed_leaves_one_group(form: str) -> None:
    assert colors(form) == [0] * len(PROCESSES)


def test_without_a_variable_there_is_one_group() -> None:
    assert {color(process, {}) for process in PROCESSES} == {0}


@given(st.integers(0, 0xFFFF), st.booleans(), st.integers(0, 1000))
def test_the_mask_is_hexadecimal_with_or_without_0x_and_wins(mask: int, prefix: bool, process: int) -> None:
    environment = {"NCCL_TESTS_SPLIT_MASK": f"{'0x' if prefix else ''}{mask:x}", "NCCL_TESTS_SPLIT": "DIV 1"}
    assert color(process, environment) == process & mask


def test_a_mask_that_is_no_number_is_zero() -> None:
    assert color(7, {"NCCL_TESTS_SPLIT_MASK": "zz"}) == 0


@pytest.mark.parametrize("form", ["MOD 0", "DIV 0", "%0", "/ 0x0", "MOD 0b2", "MOD -3", "DIV -1"])
def test_dividing_by_nothing_or_less_is_refused_where_nccl_tests_dies(form: str) -> None:
    with pytest.raises(UsageError) as told:
        colors(form)
    assert told.value.message.startswith(f"NCCL_TESTS_SPLIT={form}: ")
    assert told.value.hint == "give a number above 0"


@given(st.text(max_size=12), st.integers(0, 100))
def test_whatever_the_text_is_the_answer_is_a_group_or_a_usage_error(text: str, process: int) -> None:
    try:
        assert isinstance(color(process, {"NCCL_TESTS_SPLIT": text}), int)
    except UsageError:
        assert any(word in text.lower() for word in ("mod", "div", "%", "/"))
