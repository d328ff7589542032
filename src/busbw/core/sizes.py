"""Sizes and integers as nccl-tests reads them, and as people read them back.

K, M, G are powers of 1024 in arguments (nccl-tests has it so); GB in figures is 10^9 bytes.
"""

import re

from busbw.core.errors import UsageError

_FACTOR = {"": 1, "k": 1 << 10, "K": 1 << 10, "m": 1 << 20, "M": 1 << 20, "g": 1 << 30, "G": 1 << 30}
_NUMBER = r"[+-]?(?:0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?\d+)?|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
# What C's sscanf("%lf %1s") takes: a decimal or hexadecimal float, white space, then whatever follows.
_SIZE = re.compile(rf"\s*({_NUMBER})\s*(\S?)", re.ASCII)
_FLOAT = re.compile(rf"\s*({_NUMBER}|[+-]?(?:inf|nan))", re.ASCII | re.IGNORECASE)
_LONG = 1 << 63
_INT = re.compile(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", re.ASCII)


def parse_size(text: str, option: str = "size") -> int:
    """Bytes from `8`, `1.5G`, `64M`, `8GB`, `1e6` (first suffix letter counts, 1024-based); UsageError for anything else."""
    match = _SIZE.match(text)
    factor = _FACTOR.get(match.group(2)) if match else None
    size = _float(match.group(1)) * factor if match and factor else -1.0
    if not 0 <= size < float("inf"):
        raise UsageError(f"{option}: '{text}' is not a size", "write bytes, or a number with K, M or G, like 8, 64K, 1.5G")
    return int(size)


def parse_float(text: str) -> float:
    """A number as C's atof reads it: decimal or hexadecimal, inf and nan too, trailing text ignored, no number at all is 0."""
    match = _FLOAT.match(text)
    return _float(match.group(1)) if match else 0.0


def _float(text: str) -> float:
    try:
        return float.fromhex(text) if "x" in text.lower() else float(text)
    except OverflowError:  # of fromhex alone
        return float("-inf" if text.startswith("-") else "inf")


def parse_int(text: str) -> int:
    """An integer as C's strtol(text, 0, 0) reads it: 0x and octal prefixes, trailing text ignored, no number at all is 0; 64 bits."""
    match = _INT.match(text)
    if not match:
        return 0
    digits = match.group(2)
    base = 16 if digits[:2].lower() == "0x" else 8 if digits[0] == "0" else 10
    value = int(digits, base) if base != 10 or len(digits) < 100 else _LONG
    return max(-value, -_LONG) if match.group(1) == "-" else min(value, _LONG - 1)


def short_size(size_bytes: int) -> str:
    """The shortest argument that `parse_size` reads back as these bytes: `8`, `1M`, `8G`."""
    for suffix, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{suffix}"
    return str(size_bytes)


def format_size(size_bytes: int) -> str:
    """`8 B`, `64 KiB`, `1.5 GiB`: powers of 1024, at most two decimals, exact sizes without any."""
    value, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.2f}".rstrip("0").rstrip(".") + f" {unit}"
