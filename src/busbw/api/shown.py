"""What results and reports show as themselves in Python: `core.shown` calls it."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, tostring

import msgspec

from busbw.check.types import CheckReport, ClusterReport, worst
from busbw.core.cells import all_figures, figures
from busbw.core.comparison import Comparison
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict
from busbw.core.pattern import Pattern
from busbw.core.result import Outcome, Result
from busbw.core.shown import Tabular
from busbw.core.sizes import counted, format_size
from busbw.core.tuner_table import TunerTable
from busbw.link.types import LinkReport, SuspectReport
from busbw.measure.formats import csv, one_line, table
from busbw.model.types import PatternPrediction, Prediction
from busbw.transfer import text as transfer_text
from busbw.transfer.types import TransferReport
from busbw.ui.columns import Column
from busbw.ui.html.element import tag
from busbw.ui.number_formats import bandwidth_text, time_text

if TYPE_CHECKING:
    import pandas

WIDTH = 100  # characters of a text in a notebook
MOST_ROWS = 60  # of a sweep in a notebook
LISTED = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN)
RIGHT, LEFT = "text-align: right", "text-align: left"
_PLAIN_TEXT = "white-space: pre; overflow-x: auto; text-align: left"
MERGED = ("forecast", "key")  # structures of a row whose fields are fields of the row
# The attribute that has the rows.
ROWS: Mapping[type, str] = {
    CheckReport: "findings",
    Comparison: "cells",
    LinkReport: "flows",
    Pattern: "rows",
    PatternPrediction: "rows",
    Prediction: "rows",
    SuspectReport: "runs",
    TransferReport: "rows",
}


def line(shown: object) -> str:
    """`<Result all_reduce on 8 ranks: busbw 476.20 GB/s +-0.3 % at 8 GiB; data checked>`."""
    return f"<{type(shown).__name__} {_summary(shown)}>"


def _summary(shown: object) -> str:
    if isinstance(shown, Result):
        return one_line.render(shown).strip()
    for kind, summary in _SUMMARIES.items():
        if isinstance(shown, kind):
            return summary(shown)
    if isinstance(shown, Outcome):
        from busbw.report.results import kind_of

        return kind_of(shown).noun(shown)
    return _file_kind(shown)[0].lower()


def _check(report: CheckReport) -> str:
    from busbw.check.brief import brief

    return _of_monitor(report.verdict, brief(report)[1])


def _cluster(report: ClusterReport) -> str:
    from busbw.check.brief import brief_cluster

    verdict = worst(node.verdict for node in report.nodes)
    return _of_monitor(verdict, brief_cluster(report, verdict)[1])


def _of_monitor(verdict: Verdict, text: str) -> str:
    """The line for a monitor without its first word and its figures."""
    return f"{verdict.value}: {text.partition(' - ')[2].partition(' | ')[0].strip()}"


def _link(report: LinkReport) -> str:
    verdict = worst(finding.verdict for finding in report.findings).value
    hosts, flows = counted(len(report.hosts), "host"), counted(len(report.flows), "flow")
    return f"{verdict}: {hosts}, {flows}"


def _comparison(comparison: Comparison) -> str:
    from busbw.history.comparison_text import summary

    return f"{comparison.what or comparison.collective}: {summary(comparison)}"


def _prediction(prediction: Prediction) -> str:
    at = prediction.described
    text = f"{prediction.collective} on {counted(at.hosts, 'host')} of {at.system}"
    named = (row for row in prediction.rows if row.hosts == at.hosts)
    fastest = max(named, key=lambda row: row.busbw, default=None)
    if fastest is None:
        return text
    busbw, size = bandwidth_text(fastest.busbw), format_size(fastest.size_bytes)
    return f"{text}: up to {busbw} GB/s, at {size}"


def _pattern_prediction(prediction: PatternPrediction) -> str:
    at = prediction.described
    where = f"{counted(at.hosts, 'host')} of {at.system}"
    return f"{prediction.source} on {where}: {time_text(prediction.total_s)}"


def _pattern(record: Pattern) -> str:
    calls = sum(row.calls for row in record.rows)
    return f"{counted(calls, 'call')} in {counted(len(record.rows), 'row')}"


_SUMMARIES: Mapping[type, Callable[[Any], str]] = {
    CheckReport: _check,
    ClusterReport: _cluster,
    Comparison: _comparison,
    LinkReport: _link,
    Pattern: _pattern,
    PatternPrediction: _pattern_prediction,
    Prediction: _prediction,
    TransferReport: transfer_text.summary,
}


def _file_kind(shown: object) -> tuple[str, Callable[[Any, int | None], str]]:
    """The title and the text of what is no result."""
    from busbw.core.extensions import added
    from busbw.pattern import text as pattern_text
    from busbw.report import file_kinds
    from busbw.tune import text as tune_text

    if isinstance(shown, Pattern):
        return file_kinds.PATTERN, pattern_text.table
    if isinstance(shown, TunerTable):
        return file_kinds.TUNER_TABLE, tune_text.table_text
    kinds: tuple[file_kinds.FileKind, ...] = (*file_kinds.KINDS, *added("files"))
    kind = next(kind for kind in kinds if isinstance(shown, kind.structure))
    return kind.title, kind.text


def html(shown: object) -> str:
    """A table of a sweep with its bad findings, or the text of anything else; all escaped."""
    if isinstance(shown, Result):
        parts = list(_sweep(shown))
    elif isinstance(shown, Outcome):
        from busbw.report.results import kind_of

        parts = [_plain(kind_of(shown).table(shown, WIDTH, False))]
    else:
        parts = [_plain(_file_kind(shown)[1](shown, WIDTH))]
    return tostring(tag("div", *parts), encoding="unicode", method="html")


def _plain(text: str) -> Element:
    return tag("pre", text, style=_PLAIN_TEXT)


def _sweep(result: Result) -> Iterator[Element]:
    yield tag("p", tag("b", _summary(result)))
    columns = table.columns(result, WIDTH)
    head = tag("tr", *(tag("th", column.heading, style=_style(column)) for column in columns))
    body = tag("tbody")
    for row in result.rows[:MOST_ROWS]:
        figure = figures(row)[0]
        texts = ((column.text(result, figure), _style(column)) for column in columns)
        body.append(tag("tr", *(tag("td", text, style=style) for text, style in texts)))
    yield tag("table", tag("thead", head), body)
    more = len(result.rows) - MOST_ROWS
    if more > 0:
        yield tag("p", f"{counted(more, 'more row')}: records() has all")
    for finding in result.findings:
        if finding.verdict in LISTED:
            yield tag("p", tag("b", finding.verdict.value), f" {finding.message}")


def _style(column: Column) -> str:
    return LEFT if column.left else RIGHT


def records(shown: object) -> list[dict[str, Any]]:
    """The rows as flat dictionaries: the same keys in each."""
    if isinstance(shown, Result):
        cells = all_figures(shown)
        return [{name: value(shown, cell) for name, value in csv.FIELDS} for cell in cells]
    if isinstance(shown, ClusterReport):
        return [row for node in shown.nodes for row in records(node)]
    rows = _flat(getattr(shown, ROWS[type(shown)]))
    if isinstance(shown, CheckReport):
        return [{"host": shown.host, **row} for row in rows]
    return [_named(shown, row) for row in rows] if isinstance(shown, LinkReport) else rows


def _flat(rows: Sequence[msgspec.Struct]) -> list[dict[str, Any]]:
    """The fields of rows, with those of the structures in them: of MERGED ones under their own
    names, of others as `gpu_us_median`.
    """
    flat: list[dict[str, Any]] = []
    nested: set[str] = set()
    for row in rows:
        fields: dict[str, Any] = {}
        for name in row.__struct_fields__:
            value = msgspec.to_builtins(getattr(row, name))
            if not isinstance(getattr(row, name), msgspec.Struct):
                fields.setdefault(name, value)
                continue
            nested.add(name)
            prefix = "" if name in MERGED else f"{name}_"
            for inner, part in value.items():
                fields.setdefault(prefix + inner, part)
        flat.append(fields)
    names = [name for name in dict.fromkeys(chain.from_iterable(flat)) if name not in nested]
    return [{name: fields.get(name) for name in names} for fields in flat]


def _named(report: LinkReport, row: dict[str, Any]) -> dict[str, Any]:
    """A row of a link test with the names of its rail and hosts."""
    hosts = {end: report.hosts[row[end]].name for end in ("sender", "receiver")}
    return {**row, "rail": report.rails[row["rail"]].name, **hosts}


def data_frame(shown: Tabular) -> "pandas.DataFrame":
    """The rows as a table of pandas."""
    try:
        import pandas
    except ImportError as error:
        raise UsageError(
            f"a DataFrame needs pandas, which {sys.executable} cannot import: {error}",
            f"{sys.executable} -m pip install pandas",
        ) from error
    return pandas.DataFrame(shown.records())
