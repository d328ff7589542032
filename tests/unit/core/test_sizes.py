"""Sizes and integers are read as nccl-tests reads them: the C library's own sscanf and strtol
are the reference.
"""

import ctypes
import math
import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.core.sizes import format_size, parse_float, parse_int, parse_size, scan_size, short_size

LIBC = ctypes.CDLL(None)
LIBC.strtol.restype = ctypes.c_long
LIBC.atof.restype = ctypes.c_double
FACTOR = {b"": 1, b"k": 1 << 10, b"m": 1 << 20, b"g": 1 << 30}
# glibc also takes a number that breaks off ("100e", "0x", "1p-"), which other C libraries do not.
BROKEN_OFF = re.compile(
    r"\s*[+-]?(0x([^0-9a-f.]|\.?$|\.[^0-9a-f])|0x[0-9a-f.]+p([^0-9+-]|[+-]\D|[+-]?$)"
    r"|[\d.]+e([^0-9+-]|[+-]\D|[+-]?$)|0x$)",
    re.IGNORECASE,
)
UNIT = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4}

# Text close to a size: common spellings, and what looks like a number but is not.
NUMBERS = st.one_of(
    st.integers(-9, 1 << 40).map(str),
    st.floats(0, 1e12, allow_nan=False).map(repr),
    st.floats(0, 1e6, allow_nan=False).map(float.hex),
    st.text("0123456789.eExXpP+- ", max_size=6),
)
WORDS = st.builds(
    lambda number, space, suffix: number + space + suffix,
    NUMBERS,
    st.sampled_from(["", " ", "\t"]),
    st.text("kKmMgGTBib\u212a\u0663 ", max_size=3),
)


def c_size(text: str) -> int | None:
    """Bytes by nccl-tests' rule over the real sscanf("%lf %1s"); None where it is an error."""
    number, suffix = ctypes.c_double(), ctypes.create_string_buffer(2)
    fields_read = LIBC.sscanf(text.encode(), b"%lf %1s", ctypes.byref(number), suffix)
    factor = FACTOR.get(suffix.value.lower() if fields_read == 2 else b"")
    if fields_read < 1 or factor is None or number.value < 0 or not math.isfinite(number.value):
        return None
    return int(number.value * factor)


@given(
    st.one_of(
        WORDS, st.text(max_size=8).filter(lambda text: "\0" not in text and text.isprintable())
    )
)
@example("1.5G")
@example("1e6")
@example("0x10")
@example("0x1.8p3 M")
@example("\u0663")  # C does not accept an Arabic digit three
@example("8\u212a")  # nor the kelvin sign as K
def test_sizes_are_parsed_as_by_sscanf(text: str) -> None:
    assume(not BROKEN_OFF.match(text))
    expected = c_size(text)
    if expected is None:
        with pytest.raises(UsageError, match="is not a size"):
            scan_size(text)
    else:
        assert scan_size(text) == expected


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8", 8),
        ("64k", 65536),
        ("32M", 32 << 20),
        ("1G", 1 << 30),
        ("1GB", 1 << 30),
        ("1GiB", 1 << 30),
        ("1.5G", 3 << 29),
        ("1e6", 1000000),
        ("0x10", 16),
        ("0.5", 0),
        ("2.9", 2),
        (".5K", 512),
        (" 8 M", 8 << 20),
        ("+4", 4),
        ("0", 0),
        ("1e-3K", 1),
    ],
)
def test_common_spellings_of_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "T",
        "1T",
        "8B",
        "-1",
        "-1M",
        "M",
        "inf",
        "nan",
        "1e999",
        "1e308G",
        "0x1p99999",
        "0x",
        "ten",
        "8KK",
        "16Kfoo",
        "8K,16K",
    ],
)
def test_an_invalid_size_is_refused_with_its_option_and_text(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_size(text, "-b")
    assert caught.value.message == f"-b: '{text}' is not a size"
    assert "64K" in caught.value.hint


@given(
    st.one_of(
        st.integers(-(2**31), 2**31 - 1).map(str),
        st.text("0123456789abcdefxX+- \u0663", max_size=8),
    )
)
@example("0x10")
@example("010")
@example("08")
@example("2.5")
@example("all")
@example("-1")
@example("9" * 5000)
@example("-0x" + "f" * 40)
def test_integers_are_parsed_as_by_strtol(text: str) -> None:
    assert parse_int(text) == LIBC.strtol(text.encode(), None, 0)


@given(
    st.one_of(
        NUMBERS,
        WORDS,
        st.floats().map(repr),
        st.text("0123456789.eExXpP+-infatyINFATY( ", max_size=9),
    )
)
@example("100GB")
@example("0x1.8p3")
@example("0x1p99999")
@example("-0x1p99999")
@example("0x")
@example("0x1p-")
@example("1e")
@example("infinity")
@example("-nan")
@example("nan(1)")
@example("garbage")
@example("")
@example("-.5e1x")
@example("1e999")
@example("\v3")
def test_numbers_are_parsed_as_by_atof(text: str) -> None:
    expected, parsed = LIBC.atof(text.encode()), parse_float(text)
    assert math.isnan(parsed) if math.isnan(expected) else parsed == expected


@given(st.integers(1, 1023), st.sampled_from("KMG"))
def test_whole_units_are_written_as_they_are_typed(number: int, unit: str) -> None:
    size = parse_size(f"{number}{unit}")
    assert format_size(size) == f"{number} {unit}iB"
    assert parse_size(format_size(size)) == size


@given(st.integers(0, 1 << 50))
def test_a_written_size_is_within_half_of_its_last_digit(size: int) -> None:
    value, unit = format_size(size).split(" ")
    scale = 1024 ** UNIT[unit]
    assert abs(float(value) * scale - size) <= 0.005 * scale * (1 + 1e-9)
    assert len(value.partition(".")[2]) <= 2
    assert not value.endswith((".0", ".00", "."))
    assert unit == "TiB" or size / scale < 1024


def test_written_sizes() -> None:
    assert [format_size(size) for size in (0, 8, 1000, 1024, 1536, 3 << 29, 8 << 30, 2 << 40)] == [
        "0 B",
        "8 B",
        "1000 B",
        "1 KiB",
        "1.5 KiB",
        "1.5 GiB",
        "8 GiB",
        "2 TiB",
    ]


@given(st.integers(0, 1 << 45))
def test_a_short_size_reads_back(size: int) -> None:
    assert parse_size(short_size(size)) == size
    assert (short_size(8 << 30), short_size(1 << 20), short_size(8), short_size(0)) == (
        "8G",
        "1M",
        "8",
        "0",
    )
