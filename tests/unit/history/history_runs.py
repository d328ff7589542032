"""Runs that tests store, and how an operation on a history is refused."""

from pathlib import Path

import msgspec
import pytest

from busbw.core.errors import BusbwError
from busbw.core.result import Cell, Result, ResultRow
from busbw.core.sweep import SweepSpec
from busbw.history.store import opened


def result(number: int = 0, samples: int = 0, **fields: object) -> Result:
    """A run of two sizes whose times depend on `number`."""
    rows = [
        ResultRow(
            size,
            size // 4,
            "float",
            "sum",
            -1,
            Cell(1e-3 + number * 1e-9, 1e9, 2e9, samples_s=[1e-3] * samples),
            Cell(2e-3, 1e9, 1e9),
            20,
        )
        for size in (8, 16)
    ]
    base = Result(
        SweepSpec(collective="all_reduce"),
        start=f"2026-11-{number % 28 + 1:02} 10:00:00",
        rows=rows,
        complete=True,
    )
    return msgspec.structs.replace(base, **fields)


def add(file: Path, *results: Result) -> None:
    with opened(file, create=True) as history:
        history.add(results)


def refused(file: Path, *, create: bool = True, wait_s: float = 0.2) -> BusbwError:
    with pytest.raises(BusbwError) as caught, opened(file, create=create, wait_s=wait_s) as history:
        history.add([result()])
    assert str(file) in caught.value.message
    assert caught.value.hint
    return caught.value
