"""Durations and rates of arguments: what is written is what is read, and other text is an error
that names the option.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.core.rates import BITS_A_BYTE, FACTORS, parse_rate
from busbw.core.sizes import TIMES, duration, span

NUMBERS = (
    st.floats(0.001, 1e6).map(lambda number: round(number, 3)).filter(lambda number: number > 0)
)


@given(NUMBERS, st.sampled_from(sorted(FACTORS)), st.sampled_from(["", " "]))
def test_a_rate_is_read_as_written(number, prefix, space):
    rate = pytest.approx(number * FACTORS[prefix])
    for written in (prefix, prefix.upper()):
        assert parse_rate(f"{number:.3f}{space}{written}B/s", "--rate") == rate
        for bits in ("bit/s", "bit", "BIT/S"):
            of_bits = parse_rate(f"{number:.3f}{space}{written}{bits}", "--rate")
            assert of_bits * BITS_A_BYTE == rate


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("450", "write it like --ideal 450GB/s"),
        ("400Gb/s", "write --ideal 400Gbit/s or --ideal 400GB/s"),
        ("400kb/s", "write --ideal 400kbit/s or --ideal 400kB/s"),
        ("fast", "give a number and its unit, like --ideal 450GB/s"),
    ],
)
def test_the_hint_for_a_rate_that_is_not_clear_can_be_typed(text, hint):
    with pytest.raises(UsageError) as caught:
        parse_rate(text, "--ideal")
    assert caught.value.hint == hint


@pytest.mark.parametrize(("text", "rate"), [("400G", 50e9), ("2.5 g", 312.5e6), ("300M", 37.5e6)])
def test_a_rate_of_a_link_may_be_as_vendors_write_it(text, rate):
    assert parse_rate(text, "--rate", "25Gbit/s") == rate
    with pytest.raises(UsageError):
        parse_rate(text, "--ideal", "450GB/s")


@given(NUMBERS, st.sampled_from(sorted(TIMES)), st.sampled_from(["", " "]))
def test_a_time_is_read_as_written(number, unit, space):
    assert duration(f"{number:.3f}{space}{unit}") == pytest.approx(number * TIMES[unit])


@given(st.text(max_size=12))
def test_any_text_is_a_value_or_an_error_that_shows_it(text):
    try:
        value = parse_rate(text, "--option")
    except UsageError as error:
        assert f"--option {text}:" in error.message
        assert "--option" in error.hint
    else:
        assert 0 <= value < math.inf


@pytest.mark.parametrize(
    "text",
    [
        "",
        "25",
        "gbit",
        "-1gbit",
        "0gbit",
        "1e3gbit",
        "25gbps",
        "450GB",
        "450gb/s",
        "25Gbit/m",
        "nan",
        "infgbit",
        "9" * 400 + "gbit",
    ],
)
def test_invalid_rates_are_refused(text):
    with pytest.raises(UsageError):
        parse_rate(text, "--rate")


@pytest.mark.parametrize("text", ["", "us", "-1us", "1 d", "nan", "50US"])
def test_other_text_is_no_time(text):
    assert math.isnan(duration(text))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (2.5, "2.5 s"),
        (10, "10 s"),
        (59, "59 s"),
        (60, "1 min"),
        (150, "2.5 min"),
        (3599, "60 min"),
        (3600, "1 h"),
        (86_399, "24 h"),
        (86_400, "1 d"),
        (3 * 86_400, "3 d"),
        (9.94 * 86_400, "9.9 d"),
        (30.4 * 86_400, "30 d"),
    ],
)
def test_a_duration_for_people_has_one_decimal_where_it_counts(seconds, text):
    assert span(seconds) == text
