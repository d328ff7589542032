"""Parses perftest's output: versions, options, and the table of a test.

Rows are recognized by their numbers: messages about CPU frequencies come between the lines, and
some versions print the header twice. A row of bandwidth has two integers and three decimals, one of
latency two integers and three or more decimals. Without --report_gbits bandwidth is in units of
2^20 bytes, whether the header says MB/sec or MiB/sec.
"""

import re
from dataclasses import dataclass

_UNITS = {"Gb/sec": 1e9 / 8, "MB/sec": float(1 << 20), "MiB/sec": float(1 << 20)}
_UNIT = re.compile(r"BW average\[(Gb/sec|MB/sec|MiB/sec)\]")
_BANDWIDTH = re.compile(r"(?<![\d.])(\d+)\s+(\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)(?![\d.])")
_LATENCY = re.compile(r"(?<![\d.])(\d+)\s+(\d+)((?:\s+\d+\.\d+){3,})")
_TYPICAL, _P99 = 2, 5  # columns of latency after the integers
_MTU = re.compile(r"Mtu\s*:\s*(\d+)\s*\[B\]")
_VERSION = re.compile(r"Version:\s*(\S+)")
_GPU_OPTION = "--use_cuda"
US = 1e-6


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """`rate` is the average in bytes per second, `mtu` the RDMA MTU of the header, None if it
    does not say.
    """

    rate: float
    mtu: int | None


@dataclass(frozen=True, slots=True)
class Trips:
    """Seconds: `typical` is the median; `p99` is None in versions that do not print it."""

    typical: float
    p99: float | None
    count: int


def bandwidth(text: str, size: int) -> Bandwidth | None:
    """The last row of `size` bytes; None if there is none, or its unit is unknown."""
    unit = _UNIT.search(text)
    if unit is None:
        return None
    rows = [row for row in _BANDWIDTH.finditer(text, unit.end()) if int(row.group(1)) == size]
    mtu = _MTU.search(text)
    return (
        Bandwidth(
            float(rows[-1].group(4)) * _UNITS[unit.group(1)], int(mtu.group(1)) if mtu else None
        )
        if rows
        else None
    )


def latency(text: str) -> Trips | None:
    """The last row; None if there is none."""
    head = text.find("t_typical[usec]")
    rows = list(_LATENCY.finditer(text, head)) if head >= 0 else []
    if not rows:
        return None
    values = [float(value) * US for value in rows[-1].group(3).split()]
    return Trips(
        values[_TYPICAL], values[_P99] if len(values) > _P99 else None, int(rows[-1].group(2))
    )


def version(text: str) -> str:
    """The version that `--version` prints; '' if it does not."""
    found = _VERSION.search(text)
    return found.group(1) if found else ""


def sends_from_gpu(text: str) -> bool:
    """Whether the help has the option for GPU memory: only programs built with CUDA have it."""
    return _GPU_OPTION in text


def complaint(text: str) -> str:
    """The last line of text but warnings, for an error message; '' if there is none.

    For an unknown option, the line that names it.
    """
    lines = [line.strip() for line in text.splitlines()]
    if unknown := next((line for line in lines if "unrecognized option" in line), ""):
        return unknown
    said = (
        line
        for line in reversed(lines)
        if line and not line.startswith("WARNING") and not set(line) <= set("-*= ")
    )
    return next(said, "")
