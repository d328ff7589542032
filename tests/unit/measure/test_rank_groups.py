"""NCCL_TESTS_SPLIT and NCCL_TESTS_SPLIT_MASK are interpreted as in nccl-tests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.measure.process_groups import color

PROCESSES = range(10)


def colors(value: str) -> list[int]:
    return [color(process, {"NCCL_TESTS_SPLIT": value}) for process in PROCESSES]


@pytest.mark.parametrize(
    "form", ["AND 0x3", "and 3", "&3", "& 0b11", "AND3", "AND 03", "And\t3", "AND 3x"]
)
def test_split_and(form: str) -> None:
    assert colors(form) == [process & 3 for process in PROCESSES]


@pytest.mark.parametrize("form", ["OR 0xc", "or 12", "|12", "| 0b1100", "OR 014"])
def test_split_or(form: str) -> None:
    assert colors(form) == [process | 12 for process in PROCESSES]


@pytest.mark.parametrize("form", ["MOD 4", "mod4", "%4", "% 0x4", "MOD 0b100", "MOD 04"])
def test_split_mod(form: str) -> None:
    assert colors(form) == [process % 4 for process in PROCESSES]


@pytest.mark.parametrize("form", ["DIV 4", "/4", "/ 0x4", "div 0b100"])
def test_split_div(form: str) -> None:
    assert colors(form) == [process // 4 for process in PROCESSES]


@pytest.mark.parametrize("form", ["", "XOR 3", "4", "AND", "MOD", "?"])
def test_an_unparsable_split_gives_one_group(form: str) -> None:
    assert colors(form) == [0] * len(PROCESSES)


def test_without_a_split_variable_there_is_one_group() -> None:
    assert {color(process, {}) for process in PROCESSES} == {0}


@given(st.integers(0, 0xFFFF), st.booleans(), st.integers(0, 1000))
def test_the_mask_is_hexadecimal_and_overrides_the_split(
    mask: int, prefix: bool, process: int
) -> None:
    environment = {
        "NCCL_TESTS_SPLIT_MASK": f"{'0x' if prefix else ''}{mask:x}",
        "NCCL_TESTS_SPLIT": "DIV 1",
    }
    assert color(process, environment) == process & mask


def test_an_invalid_mask_is_zero() -> None:
    assert color(7, {"NCCL_TESTS_SPLIT_MASK": "zz"}) == 0


@pytest.mark.parametrize("form", ["MOD 0", "DIV 0", "%0", "/ 0x0", "MOD 0b2", "MOD -3", "DIV -1"])
def test_a_divisor_below_1_is_refused(form: str) -> None:
    with pytest.raises(UsageError) as caught:
        colors(form)
    assert caught.value.message.startswith(f"NCCL_TESTS_SPLIT={form}: ")
    assert caught.value.hint == "give a number above 0"


@given(st.text(max_size=12), st.integers(0, 100))
def test_any_split_text_gives_a_group_or_a_usage_error(text: str, process: int) -> None:
    try:
        assert isinstance(color(process, {"NCCL_TESTS_SPLIT": text}), int)
    except UsageError:
        assert any(word in text.lower() for word in ("mod", "div", "%", "/"))
