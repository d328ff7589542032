"""Every view is in the table of views, and none needs all rows to print one."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator

import pytest

from busbw.core.errors import UsageError
from busbw.core.result import Result, ResultRow
from busbw.measure import formats
from busbw.report.registry import VIEWS, View, view


def test_every_module_that_prints_rows_is_registered() -> None:
    modules = [
        importlib.import_module(f"{formats.__name__}.{info.name}")
        for info in pkgutil.iter_modules(formats.__path__)
    ]
    rendering = {
        module.__name__
        for module in modules
        if hasattr(module, "render") or hasattr(module, "header")
    }
    assert rendering <= {row.module for row in VIEWS}


def test_names_are_unique_and_found() -> None:
    assert len({row.name for row in VIEWS}) == len(VIEWS)
    assert all(view(row.name) is row and row.help for row in VIEWS)
    with pytest.raises(UsageError, match="no view 'xml'") as caught:
        view("xml")
    assert "torch-csv" in caught.value.hint


@pytest.mark.parametrize("row", VIEWS, ids=lambda row: row.name)
def test_a_streaming_view_writes_each_row_at_once(row: View, make: Callable[..., Result]) -> None:
    result = make()
    assert bool(row.row(result, result.rows[0])) == row.streams
    # Titles come before there are rows, so they must not depend on them.
    assert row.header(make([])) == row.header(result)


class Unseen(list[ResultRow]):
    """Rows that fail when they are iterated."""

    def __iter__(self) -> Iterator[ResultRow]:
        raise AssertionError("one row was printed by going through all of them")


@pytest.mark.parametrize("row", [row for row in VIEWS if row.streams], ids=lambda row: row.name)
@pytest.mark.parametrize(
    "spec", [{}, {"op": "max"}, {"sampling": {"repeats": 3}}], ids=["sum", "max", "repeats"]
)
def test_a_row_is_printed_independently_of_the_others(
    row: View, spec: dict[str, object], make: Callable[..., Result]
) -> None:
    """Else a sweep of n rows takes n x n steps to print."""
    result = make(spec=spec)
    first, result.rows = result.rows[0], Unseen(result.rows)
    assert row.row(result, first)
