"""The table of views: each format that `--format` names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from busbw.core.errors import UsageError

if TYPE_CHECKING:
    from busbw.core.result import Outcome, Result, ResultRow

FORMATS = "busbw.measure.formats"


@dataclass(frozen=True, slots=True)
class View:
    """One view: its whole text is the header, the rows and the footer.

    They are functions of these names in `module`, after `prefix`, which is imported when the view
    is used; one that is not there adds nothing. A view that does not stream writes everything in
    its footer, by `render`. `options` are given to each function.
    """

    name: str
    help: str
    module: str
    streams: bool = True
    prefix: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def header(self, result: "Result") -> str:
        """The text before the rows."""
        return self._text("header", result)

    def row(self, result: "Result", row: "ResultRow") -> str:
        return self._text("row", result, row)

    def footer(self, result: "Result") -> str:
        """The text after the rows."""
        return self._text("footer" if self.streams else "render", result)

    def render(self, result: "Result") -> str:
        """The whole text."""
        rows = (self.row(result, row) for row in result.rows)
        return "".join([self.header(result), *rows, self.footer(result)])

    def _text(self, part: str, *arguments: object) -> str:
        module = import_module(self.module)
        make: Callable[..., str] | None = getattr(module, self.prefix + part, None)
        return make(*arguments, **self.options) if make else ""


VIEWS: tuple[View, ...] = (
    View("table", "a table to read, with the shape of the sweep and findings", f"{FORMATS}.table"),
    View("nccl-tests", "the text of nccl-tests, byte for byte", f"{FORMATS}.nccl_tests_text"),
    View("csv", "every value, one line per row and placement", f"{FORMATS}.csv"),
    View(
        "torch-csv",
        "the CSV of the PyTorch benchmark: in place, with ideal and efficiency",
        f"{FORMATS}.csv",
        prefix="torch_",
    ),
    View("markdown", "a table for GitHub", f"{FORMATS}.markdown"),
    View(
        "brief",
        "one line: the largest busbw with its precision, its part of the ideal, and whether the"
        " data was right",
        f"{FORMATS}.one_line",
        streams=False,
    ),
    View("json", "busbw's own format, busbw.result/1", "busbw.report.results", streams=False),
    View(
        "nccl-tests-json",
        "the JSON of nccl-tests -J, version 4",
        f"{FORMATS}.nccl_tests_json",
        streams=False,
    ),
)
BY_NAME: dict[str, View] = {view.name: view for view in VIEWS}


def view(name: str, width: int | None = None, *, ran: bool = False) -> View:
    """The view called `name`; UsageError if there is none.

    The table fits `width` columns, None for all of its own, and has the columns of what NCCL `ran`.
    """
    view = BY_NAME.get(name)
    if view is None:
        raise UsageError(f"--format: there is no view '{name}'", f"use one of {', '.join(BY_NAME)}")
    if name != "table" or (width is None and not ran):
        return view
    return replace(view, options={"width": width, "ran": ran})


def render(
    result: "Outcome",
    name: str,
    source: str = "this result",
    width: int | None = None,
    *,
    ran: bool = False,
) -> str:
    """The whole text of a result in the view called `name`; `ran` adds columns to the table.

    UsageError, which names `source`, if the view is for sweeps only and the result is no sweep.
    """
    from busbw.core.result import Result
    from busbw.report import results  # imports what prints the other kinds

    sweep_view = view(name, width, ran=ran)
    if isinstance(result, Result):
        return sweep_view.render(result)
    if name == "json":
        return results.render(result)
    kind_of_run = results.kind_of(result)
    if name == "table":
        return kind_of_run.table(result, width, ran)
    markdown = kind_of_run.markdown(result) if name == "markdown" else None
    if markdown is not None:
        return markdown
    raise UsageError(
        f"{source} is {kind(result)}, but '{name}' shows sweeps", "use --format table, or json"
    )


def kind(result: "Outcome") -> str:
    """`a plan for mlp`, `a training of mlp`, `a sweep of all_reduce`."""
    from busbw.core.result import Result

    if isinstance(result, Result):
        return f"a sweep of {result.spec.collective}"
    from busbw.report import results

    return results.kind_of(result).noun(result)
