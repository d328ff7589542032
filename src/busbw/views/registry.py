"""The table of views: every way a Result can be written, by the name `--format` takes."""

from collections.abc import Callable
from dataclasses import dataclass

from busbw.core.errors import UsageError
from busbw.core.result import Result, Row
from busbw.views import csv, markdown, nccl_tests_json, nccl_tests_text, result_json, table


@dataclass(frozen=True, slots=True)
class View:
    """One view. Header, rows and footer in this order are the whole text; `streams` tells whether rows are written as they come.

    A view that does not stream writes everything in its footer.
    """

    name: str
    help: str
    header: Callable[[Result], str]
    row: Callable[[Result, Row], str]
    footer: Callable[[Result], str]
    streams: bool = True

    def render(self, result: Result) -> str:
        """The whole text."""
        return self.header(result) + "".join(self.row(result, row) for row in result.rows) + self.footer(result)


def _no_header(result: Result) -> str:
    return ""


def _no_row(result: Result, row: Row) -> str:
    return ""


def _document(name: str, help: str, render: Callable[[Result], str]) -> View:
    return View(name, help, _no_header, _no_row, render, streams=False)


VIEWS: tuple[View, ...] = (
    View("table", "a table to read, with the shape of the sweep and findings", table.header, table.row, table.footer),
    View("nccl-tests", "the text of nccl-tests, byte for byte", nccl_tests_text.header, nccl_tests_text.row, nccl_tests_text.footer),
    View("csv", "every figure, one line per row and placement", csv.header, csv.row, csv.footer),
    View(
        "torch-csv",
        "the CSV of the PyTorch benchmark: in place, with ideal and efficiency",
        csv.torch_header,
        csv.torch_row,
        csv.torch_footer,
    ),
    View("markdown", "a table for GitHub", markdown.header, markdown.row, markdown.footer),
    _document("json", "busbw's own format, busbw.result/1", result_json.render),
    _document("nccl-tests-json", "the JSON of nccl-tests -J, version 3", nccl_tests_json.render),
)
BY_NAME: dict[str, View] = {view.name: view for view in VIEWS}


def view(name: str) -> View:
    """The view called `name`; UsageError when there is none."""
    found = BY_NAME.get(name)
    if found is None:
        raise UsageError(f"--format: there is no view '{name}'", f"use one of {', '.join(BY_NAME)}")
    return found
