"""The table of views: every way a Result can be written, by the name `--format` takes."""

from collections.abc import Callable
from dataclasses import dataclass

from busbw.core.errors import UsageError
from busbw.core.result import AnyResult, PlanResult, Result, Row
from busbw.views import csv, markdown, nccl_tests_json, nccl_tests_text, planning, result_json, table, training


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


def render(result: AnyResult, name: str, source: str = "this result") -> str:
    """The whole text of a result in the view called `name`; UsageError, which names `source`, where that view is for sweeps only."""
    if isinstance(result, Result):
        return view(name).render(result)
    if view(name).name == "json":
        return result_json.render(result)
    if name == "table":
        return planning.render_all(result) if isinstance(result, PlanResult) else training.render_all(result)
    raise UsageError(f"{source} is {kind(result)}, and '{name}' shows sweeps", "use --format table, or json")


def kind(result: AnyResult) -> str:
    """`a plan for mlp`, `a training of mlp`, `a sweep of all_reduce`."""
    if isinstance(result, Result):
        return f"a sweep of {result.spec.collective}"
    return f"a {'plan for' if isinstance(result, PlanResult) else 'training of'} {result.training.spec.model}"
