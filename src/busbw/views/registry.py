"""The table of views: each format that `--format` names."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from busbw.core.errors import UsageError
from busbw.core.result import Result, Row
from busbw.views import csv, markdown, nccl_tests_json, nccl_tests_text, result_json, table


def _nothing(*unused: object) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class View:
    """One view. Header, rows and footer in this order are the whole text; `streams` tells whether rows are written as they come.

    A view that does not stream writes everything in its footer.
    """

    name: str
    help: str
    header: Callable[[Result], str] = _nothing
    row: Callable[[Result, Row], str] = _nothing
    footer: Callable[[Result], str] = _nothing
    streams: bool = True

    def render(self, result: Result) -> str:
        """The whole text."""
        return self.header(result) + "".join(self.row(result, row) for row in result.rows) + self.footer(result)


VIEWS: tuple[View, ...] = (
    View(
        name="table",
        help="a table to read, with the shape of the sweep and findings",
        header=table.header,
        row=table.row,
        footer=table.footer,
    ),
    View(
        name="nccl-tests",
        help="the text of nccl-tests, byte for byte",
        header=nccl_tests_text.header,
        row=nccl_tests_text.row,
        footer=nccl_tests_text.footer,
    ),
    View(name="csv", help="every figure, one line per row and placement", header=csv.header, row=csv.row),
    View(
        name="torch-csv",
        help="the CSV of the PyTorch benchmark: in place, with ideal and efficiency",
        header=csv.torch_header,
        row=csv.torch_row,
    ),
    View(name="markdown", help="a table for GitHub", header=markdown.header, row=markdown.row, footer=markdown.footer),
    View(name="json", help="busbw's own format, busbw.result/1", footer=result_json.render, streams=False),
    View(name="nccl-tests-json", help="the JSON of nccl-tests -J, version 3", footer=nccl_tests_json.render, streams=False),
)
BY_NAME: dict[str, View] = {view.name: view for view in VIEWS}


def view(name: str, width: int | None = None) -> View:
    """The view called `name`; UsageError when there is none.

    `width` is the number of columns of the terminal that it is for: the table then has colours and keeps within them.
    """
    found = BY_NAME.get(name)
    if found is None:
        raise UsageError(f"--format: there is no view '{name}'", f"use one of {', '.join(BY_NAME)}")
    return _in_terminal(found, width) if name == "table" and width else found


def _in_terminal(plain: View, width: int) -> View:
    from busbw.views import table_rich as rich

    return replace(
        plain,
        header=lambda result: rich.escaped(rich.header(result, width)),
        row=lambda result, row: rich.escaped(rich.row(result, row, width)),
        footer=lambda result: rich.escaped(rich.footer(result, width)),
    )
