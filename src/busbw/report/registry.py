"""The table of views: each format that `--format` names."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from busbw.core.errors import UsageError
from busbw.core.result import Outcome, Result, ResultRow
from busbw.measure.formats import csv, markdown, nccl_tests_json, nccl_tests_text, one_line, table
from busbw.report import results


def _empty(*_: object) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class View:
    """One view: its whole text is the header, the rows and the footer.

    A view that does not stream writes everything in its footer.
    """

    name: str
    help: str
    header: Callable[[Result], str] = _empty
    row: Callable[[Result, ResultRow], str] = _empty
    footer: Callable[[Result], str] = _empty
    streams: bool = True

    def render(self, result: Result) -> str:
        """The whole text, of the header's type: a terminal's text is not escaped again."""
        header = self.header(result)
        rows = (self.row(result, row) for row in result.rows)
        return type(header)("".join([header, *rows, self.footer(result)]))


def _streaming(name: str, help: str, module: Any) -> View:
    return View(name, help, module.header, module.row, getattr(module, "footer", _empty))


VIEWS: tuple[View, ...] = (
    _streaming("table", "a table to read, with the shape of the sweep and findings", table),
    _streaming("nccl-tests", "the text of nccl-tests, byte for byte", nccl_tests_text),
    _streaming("csv", "every value, one line per row and placement", csv),
    View(
        "torch-csv",
        "the CSV of the PyTorch benchmark: in place, with ideal and efficiency",
        csv.torch_header,
        csv.torch_row,
    ),
    _streaming("markdown", "a table for GitHub", markdown),
    View(
        "brief",
        "one line: the largest precise busbw, its part of the ideal, and whether the data was"
        " right",
        footer=one_line.footer,
        streams=False,
    ),
    View("json", "busbw's own format, busbw.result/1", footer=results.render, streams=False),
    View(
        "nccl-tests-json",
        "the JSON of nccl-tests -J, version 4",
        footer=nccl_tests_json.render,
        streams=False,
    ),
)
BY_NAME: dict[str, View] = {view.name: view for view in VIEWS}


def view(name: str, width: int | None = None, *, colors: bool = False, ran: bool = False) -> View:
    """The view called `name`; UsageError if there is none.

    The table fits `width` columns, None for all of its own, has `colors` for a terminal, and the
    columns of what NCCL `ran`.
    """
    view = BY_NAME.get(name)
    if view is None:
        raise UsageError(f"--format: there is no view '{name}'", f"use one of {', '.join(BY_NAME)}")
    if name != "table" or (width is None and not colors and not ran):
        return view
    return _colored(view, width, ran=ran) if colors else _fitted(view, width, ran=ran)


def _fitted(whole: View, width: int | None, *, ran: bool) -> View:
    return replace(
        whole,
        header=partial(table.header, width=width, ran=ran),
        row=partial(table.row, width=width, ran=ran),
        footer=partial(table.footer, width=width, ran=ran),
    )


def _colored(plain: View, width: int | None, *, ran: bool) -> View:
    from busbw.measure.formats import table_rich as rich

    def escaped(part: Callable[..., Any], **options: bool) -> Callable[..., str]:
        return lambda *arguments: rich.escaped(part(*arguments, width, **options))

    return replace(
        plain,
        header=escaped(rich.header, ran=ran),
        row=escaped(rich.row, ran=ran),
        footer=escaped(rich.footer, ran=ran),
    )


def render(
    result: Outcome,
    name: str,
    source: str = "this result",
    width: int | None = None,
    *,
    colors: bool = False,
    ran: bool = False,
) -> str:
    """The whole text of a result in the view called `name`; `ran` adds columns to the table.

    UsageError, which names `source`, if the view is for sweeps only and the result is no sweep.
    """
    sweep_view = view(name, width, colors=colors, ran=ran)
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


def kind(result: Outcome) -> str:
    """`a plan for mlp`, `a training of mlp`, `a sweep of all_reduce`."""
    if isinstance(result, Result):
        return f"a sweep of {result.spec.collective}"
    return results.kind_of(result).noun(result)
