"""Sizes, integers and durations: parsed from arguments, and formatted.

K, M and G in arguments are powers of 1024, as in nccl-tests; GB in results is 10^9 bytes.
"""

import math
import re

from busbw.core.errors import UsageError

_FACTOR = {
    "": 1,
    "k": 1 << 10,
    "K": 1 << 10,
    "m": 1 << 20,
    "M": 1 << 20,
    "g": 1 << 30,
    "G": 1 << 30,
}
_NUMBER = (
    r"[+-]?(?:0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?\d+)?"
    r"|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
)
# As C's sscanf("%lf %1s"): a decimal or hexadecimal float, white space, one character.
_SIZE = re.compile(rf"\s*({_NUMBER})\s*(\S?)", re.ASCII)
_WHOLE_SIZE = re.compile(rf"\s*{_NUMBER}\s*([KMG](i?B)?)?\s*", re.ASCII | re.IGNORECASE)
_FLOAT = re.compile(rf"\s*({_NUMBER}|[+-]?(?:inf|nan))", re.ASCII | re.IGNORECASE)
_LONG = 1 << 63
_INT = re.compile(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", re.ASCII)
TIMES = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SPANS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_QUANTITY = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([A-Za-z]*)\s*", re.ASCII)


def parse_size(text: str, option: str = "size") -> int:
    """Bytes from `8`, `1.5G`, `64MB`, `1e6`; else UsageError."""
    if not _WHOLE_SIZE.fullmatch(text):
        raise _no_size(text, option)
    return scan_size(text, option)


def scan_size(text: str, option: str = "size") -> int:
    """Bytes as nccl-tests parses them: what follows the first letter behind the number is ignored;
    else UsageError.
    """
    match = _SIZE.match(text)
    factor = _FACTOR.get(match.group(2)) if match else None
    size = _float(match.group(1)) * factor if match and factor else -1.0
    if not 0 <= size < float("inf"):
        raise _no_size(text, option)
    return int(size)


def _no_size(text: str, option: str) -> UsageError:
    return UsageError(
        f"{option}: '{text}' is not a size",
        "write bytes, or a number with K, M or G, like 8, 64K, 1.5G",
    )


def parse_float(text: str) -> float:
    """A number as C's atof parses it, also hexadecimal, inf, nan; 0 for other text."""
    match = _FLOAT.match(text)
    return _float(match.group(1)) if match else 0.0


def _float(text: str) -> float:
    try:
        return float.fromhex(text) if "x" in text.lower() else float(text)
    except OverflowError:  # only from fromhex
        return float("-inf" if text.startswith("-") else "inf")


def parse_int(text: str) -> int:
    """A 64-bit integer as C's strtol(text, 0, 0) parses it: 0x and octal prefixes; trailing text
    is ignored, other text is 0.
    """
    match = _INT.match(text)
    if not match:
        return 0
    digits = match.group(2)
    if digits[:2].lower() == "0x":
        value = int(digits, 16)
    elif digits[0] == "0":
        value = int(digits, 8)
    else:  # Python may refuse to parse a long decimal number
        value = int(digits) if len(digits) < 100 else _LONG
    return max(-value, -_LONG) if match.group(1) == "-" else min(value, _LONG - 1)


def short_size(size_bytes: int) -> str:
    """The shortest argument that `parse_size` turns into this size: `8`, `1M`, `8G`."""
    for suffix, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{suffix}"
    return str(size_bytes)


def counted(number: int, noun: str, plural: str = "s") -> str:
    """`1 row`, `2 rows`; `plural` is what the noun ends in."""
    return f"{number} {noun}{'' if number == 1 else plural}"


UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def format_size(size_bytes: int) -> str:
    """`8 B`, `64 KiB`, `1.5 GiB`: powers of 1024 with at most two decimals."""
    value, unit = float(size_bytes), "B"
    for larger in list(UNITS)[1:]:
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.2f}".rstrip("0").rstrip(".") + f" {unit}"


def duration(text: str) -> float:
    """Seconds from `90`, `500ms`, `2m` or `1h`; nan for other text."""
    return _with_unit(text, TIMES)


def _with_unit(text: str, factors: dict[str, float]) -> float:
    """The number times the factor of its unit; nan for other text and unknown units."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return math.nan
    return float(match.group(1)) * factors.get(match.group(2), math.nan)


def span(seconds: float) -> str:
    """A duration for people: `10 s`, `2.5 min`, `12 h`, `3 d`."""
    unit_s, name = next((unit for unit in _SPANS if seconds >= unit[0]), _SPANS[-1])
    value = seconds / unit_s
    return f"{round(value, 1 if value < 10 else None):g} {name}"
