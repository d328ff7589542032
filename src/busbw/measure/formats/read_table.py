"""Reads busbw's own table, as `busbw run > run.txt` saved it, back into a Result.

It is the inverse of `table`. Figures have the precision of the print. What the table does not hold
stays unknown: samples, the names of hosts, versions, links, the interval of the placement that the
columns do not describe. What NCCL ran is left out. An interval has its wider side on both sides.
The time of the in-place operation follows from its busbw.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from busbw.core.cells import UNKNOWN_STOP
from busbw.core.collectives import Collective
from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.errors import UsageError
from busbw.core.finding import LOG_RANKS, LOG_ROWS, LOG_TABLES, RunFinding, Verdict
from busbw.core.result import Cell, Ideal, Result, ResultRow
from busbw.core.sizes import counted, format_size
from busbw.core.sweep import Sampling, SweepSpec
from busbw.measure.formats import read_table_footer, read_table_head, reading
from busbw.measure.formats.log_lines import SPACES
from busbw.measure.formats.read_table_head import NUMBER, SIZE, Head, size_bytes
from busbw.measure.formats.table import COLUMNS, RAN
from busbw.ui.number_formats import NOT_KNOWN, TIME_UNITS

LONGEST = 4096  # longer lines are not of a table
NEEDED = {"size", "time", "busbw", "wrong"}  # no terminal is too narrow for these
SMALL, BELOW = "<0.01", 0.005e9 * (1 - 1e-9)  # older tables printed a smaller busbw so
HALF_DIGIT = 0.05 * (1 - 1e-9)  # percent: what printing a share with one decimal rounds away
_TITLES = [column.title for column in (*COLUMNS, *RAN)]
_COLOR = re.compile(r"\x1b\[[\d;]*m")
_TIME = r"(?:\d+(?:\.\d+)?|nan|inf) (?:us|ms|s)"
_SHAPES = {
    "size": SIZE,
    "time": _TIME,
    "cputime": rf"{_TIME}|-",
    "root": r"-?\d{1,9}",
    "repeat": r"\d{1,9}",
    "n": r"\d{1,9}",
    "count": r"\d{1,18}|-",
    "wrong": r"\d{1,18}|N/A",
    "timestamp": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\S+",
    "op": r"[\w(),.+*-]*",
}
_ANY = r"[<>]?[\w.+/-]+"
_INTERVAL = (
    rf"(?:\+-(?P<percent>{NUMBER}) %|\((?P<least>{NUMBER}) to (?P<most>{NUMBER})\)"
    rf"|(?P<unknown>\({NOT_KNOWN}\)))"
)
_CELL = re.compile(
    rf"{NUMBER} GB/s(?: {_INTERVAL})? at (?P<size>{SIZE})(?P<in_place> in place)?"
    rf"(?:, (?P<share><?{NUMBER}) % of ideal)?"
)
SOURCE = "busbw's table"


@dataclass
class _TextTable:
    """One table: the lines above its titles, the titles, and the lines below."""

    head: list[str]
    titles: list[str]
    below: list[str] = field(default_factory=list)


def recognized(data: bytes) -> bool:
    """Whether the text has a line of titles of busbw's table."""
    lines = data.decode("utf-8", "replace").splitlines()
    return any(_titles(line) for line in lines)


def read(text: str, collective: str | None = None, number: int | None = None) -> Result:
    """The table with this number, from 1 on.

    Without a number it is the first, with a finding if there are more. UsageError if there is no
    such table, or if neither it nor the caller names the collective.
    """
    tables = _tables(_COLOR.sub("", text).translate(SPACES).splitlines())
    if number is not None and number > len(tables):
        raise UsageError(
            f"--table {number}: there {'is' if len(tables) == 1 else 'are'}"
            f" {counted(len(tables), 'table')}",
            "give one from 1 on",
        )
    table = tables[(number or 1) - 1]
    head = read_table_head.read(table.head)
    row = reading.resolve(collective, head.collective, SOURCE)
    result = _result(table, head, row)
    if number is None and len(tables) > 1:
        result.findings.append(
            RunFinding(
                LOG_TABLES,
                Verdict.WARN,
                f"the first of {len(tables)} tables is read",
                fix="choose another with --table",
            )
        )
    return result


def _titles(line: str) -> list[str]:
    """The titles in the line; [] for another line."""
    words = _COLOR.sub("", line[:LONGEST]).split()
    if set(words) >= NEEDED and words == [title for title in _TITLES if title in words]:
        return words
    return []


def _tables(lines: Sequence[str]) -> list[_TextTable]:
    tables, above, indent = list[_TextTable](), list[str](), 0
    for line in lines:
        titles = _titles(line)
        if titles:
            indent = read_table_head.indentation(above)
            above = [read_table_head.without(indent, each) for each in above]
            tables.append(_TextTable(_last_block(above), titles))
            above = []
            continue
        above.append(line[:LONGEST])
        if tables:
            tables[-1].below.append(read_table_head.without(indent, line[:LONGEST]))
    return tables


def _last_block(lines: Sequence[str]) -> list[str]:
    """The last lines without an empty one between them."""
    kept = list(lines)
    while kept and not kept[-1].strip():
        kept.pop()
    for index in range(len(kept) - 1, -1, -1):
        if not kept[index].strip():
            return kept[index + 1 :]
    return kept


def _result(table: _TextTable, head: Head, collective: Collective) -> Result:
    reader = _Rows(table.titles, head, collective)
    rows, unread, footer = _split(table, reader)
    spec = _spec(table.titles, head, collective, rows)
    result = Result(
        spec=spec,
        library=head.library,
        loop=head.loop,
        world=head.world,
        reduced_max_bytes=head.reduced_max_bytes,
        rows=rows,
        ideal=head.ideal,
        endpoint_ideal=head.ideal,
        findings=list(read_table_footer.findings(footer)),
        errors=[line[7:] for line in footer if line.startswith("error: ")],
        complete=read_table_footer.ended(footer),
    )
    _take_peak(result, footer)
    result.findings += _doubts(unread, head)
    return result


def _split(table: _TextTable, reader: "_Rows") -> tuple[list[ResultRow], list[str], list[str]]:
    """The rows, the lines that look like rows and cannot be read, and the lines below them."""
    rows: list[ResultRow] = []
    unread: list[str] = []
    for index, line in enumerate(table.below):
        row = reader.row(line, rows[-1] if rows else None)
        if row is not None:
            rows.append(row)
        elif line.startswith(("busbw  ", "peak   ", "no size was measured")):
            return rows, unread, table.below[index:]
        elif re.match(rf"\s*(?:\d+ +)?{SIZE} ", line):
            unread.append(line.strip())
    return rows, unread, []


def _spec(
    titles: Sequence[str], head: Head, collective: Collective, rows: Sequence[ResultRow]
) -> SweepSpec:
    fields: dict[str, Any] = {"collective": collective.name, "step_bytes": 0, "iters": 0}
    if rows:
        sizes = [row.size_bytes for row in rows]
        fields |= {"min_bytes": min(sizes), "max_bytes": max(sizes)}
    fields |= reading.series(rows) | head.spec
    if "+-" in titles and "sampling" not in fields:  # the lines above are missing
        fields["sampling"] = Sampling(precision=0.0, confidence=0.0)
    if "repeat" in titles and "sampling" in fields:
        repeats = max((row.repeat for row in rows), default=0) + 1
        fields["sampling"] = msgspec.structs.replace(fields["sampling"], repeats=repeats)
    figures = [cell for row in rows for cell in (row.out_of_place, row.in_place) if cell]
    fields["check"] = int(any(cell.wrong is not None for cell in figures))
    fields["report_timestamps"] = int("timestamp" in titles)
    fields["report_cputime"] = int("cputime" in titles)
    return SweepSpec(**fields)


def _doubts(unread: Sequence[str], head: Head) -> Iterator[RunFinding]:
    if unread:
        yield RunFinding(
            LOG_ROWS,
            Verdict.WARN,
            f"{counted(len(unread), 'line')} of the table cannot be read, the first is:"
            f" {unread[0][:100]}",
        )
    if head.hosts > 1:
        yield RunFinding(
            LOG_RANKS,
            Verdict.WARN,
            f"the table does not say which ranks are on which of its {head.hosts} hosts; equal"
            " parts are assumed",
        )


class _Rows:
    """Reads rows under these titles."""

    def __init__(self, titles: Sequence[str], head: Head, collective: Collective) -> None:
        self._head, self._collective = head, collective
        self._titles = list(titles)
        shapes = [f"({_SHAPES.get(title, _ANY)})" for title in titles]
        self._pattern = re.compile(r" *" + r" +".join(shapes) + r" *$")

    def row(self, line: str, before: ResultRow | None) -> ResultRow | None:
        """The row in the line; None for another line. `before` is the row above it."""
        match = self._pattern.match(line)
        if match is None:
            return None
        facts = dict(zip(self._titles, match.groups(), strict=True))
        size = self._size(facts["size"], before)
        dtype = reading.element_type(facts.get("type", self._head.spec.get("datatype", "")))
        row = ResultRow(size, 0, dtype, "", -1, None, None, 0)
        row.op = facts.get("op", "sum" if self._collective.reduces else "")
        row.root = int(facts.get("root", "-1"))
        row.repeat = int(facts.get("repeat", "0"))
        timestamp = facts.get("timestamp", "-")
        row.timestamp = "" if timestamp == "-" else timestamp
        row.iters = int(facts.get("n") or self._head.spec.get("iters", 0))
        row.count = self._count(facts.get("count", "-"), row)
        row.out_of_place = self._main(facts, row)
        row.in_place = self._in_place(facts, row)
        return row

    def _size(self, text: str, before: ResultRow | None) -> int:
        """The bytes. A rounded size is that of the sweep which reads the same."""
        spec = self._head.spec
        step, factor = spec.get("step_bytes", 0), spec.get("step_factor", 1)
        if before is not None and before.size_bytes:
            following = before.size_bytes * factor + (step if factor == 1 else 0)
            if format_size(following) == text:
                return int(following)
        return size_bytes(text)

    def _count(self, text: str, row: ResultRow) -> int:
        """The elements: those of the column, or what the collective has at this size."""
        if text != "-":
            return int(text)
        dtype, ranks = DTYPES.get(row.dtype), self._head.world.ranks if self._has_ranks else 0
        if dtype is None or not ranks or self._collective.uneven:
            return 0
        elements = row.size_bytes // dtype.itemsize
        return self._collective.buffers(elements, ranks, dtype.itemsize).count

    @property
    def _has_ranks(self) -> bool:
        return bool(self._head.world.devices)

    def _main(self, facts: dict[str, str], row: ResultRow) -> Cell:
        """The placement that the columns describe: out of place."""
        time_s = _seconds(facts["time"])
        busbw = self._rate(facts["busbw"], row, time_s, self._factor)
        algbw = busbw / self._factor if self._factor else math.nan
        if "algbw" in facts:
            algbw = self._rate(facts["algbw"], row, time_s, 1.0)
        busbw = _of_share(busbw, facts.get("ideal"), self._head.ideal)
        cell = Cell(time_s, algbw, busbw, _whole(facts["wrong"]))
        if facts.get("cputime", "-") != "-":
            cell.cpu_time_s = _seconds(facts["cputime"])
        cell.n = int(facts.get("n", "0"))
        stop = facts.get("stop", UNKNOWN_STOP if "+-" in facts else "-")
        cell.stopped = "" if stop == "-" else stop
        for name in ("skew", "launch"):
            micro = _number(facts.get(name, "-"))
            setattr(cell, f"{name}_s", micro * 1e-6 if math.isfinite(micro) else None)
        _set_interval(cell, _number(facts.get("+-", "-")))
        return cell

    def _in_place(self, facts: dict[str, str], row: ResultRow) -> Cell | None:
        """The in-place run, of which the table has only the busbw."""
        text = facts.get("in-place", "-")
        busbw = _number(text) * 1e9
        if not math.isfinite(busbw):
            return None
        if busbw <= 0 or not self._factor:
            return self._of_in_place(Cell(math.nan, math.nan, busbw), facts)
        algbw = busbw / self._factor
        cell = Cell(self._moved_bytes(row) / algbw, algbw, busbw)
        return self._of_in_place(cell, facts)

    def _of_in_place(self, cell: Cell, facts: dict[str, str]) -> Cell:
        cell.stopped = UNKNOWN_STOP if "+-" in facts else ""
        if facts["wrong"] == "0" and self._collective.in_place_checked:
            cell.wrong = 0
        return cell

    @property
    def _factor(self) -> float:
        """The bus factor, 0 without the number of ranks."""
        if not self._has_ranks:
            return 0.0
        return float(self._collective.bus_factor(self._head.world.ranks))

    def _rate(self, text: str, row: ResultRow, time_s: float, factor: float) -> float:
        """An algbw or busbw in bytes/s; where it is too small to be printed, what follows from the
        time, with the `factor` of algbw.
        """
        if text != SMALL:
            return _number(text) * 1e9
        if not factor or not time_s > 0:
            return math.nan
        return min(self._moved_bytes(row) / time_s * factor, BELOW)

    def _moved_bytes(self, row: ResultRow) -> int:
        """The bytes that algbw divides by the time; the size where the elements are not known."""
        dtype = DTYPES.get(row.dtype)
        if dtype is None or not self._has_ranks or not row.count or self._collective.uneven:
            return row.size_bytes
        multiple = self._collective.algbw_multiple(self._head.world.ranks)
        return row.count * multiple * dtype.itemsize


def _of_share(busbw: float, share: str | None, ideal: Ideal | None) -> float:
    """The rate nearest to `busbw` whose share of the ideal reads as `share`, which may have more
    digits.
    """
    percent = 0.0 if share == "<0.1" else _number(share or "-")
    if ideal is None or not ideal.busbw or not math.isfinite(percent):
        return busbw
    least, most = ((percent + side) / 100 * ideal.busbw for side in (-HALF_DIGIT, HALF_DIGIT))
    return min(max(busbw, least), most)


def _seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * next(scale for scale, name in TIME_UNITS if name == unit)


def _number(text: str) -> float:
    """The number; nan for `-`, and for a text that is only a limit."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _set_interval(cell: Cell, percent: float) -> None:
    if math.isfinite(percent) and math.isfinite(cell.time_s):
        width_s = cell.time_s * percent / 100
        cell.low_s, cell.high_s = max(cell.time_s - width_s, 0.0), cell.time_s + width_s


def _take_peak(result: Result, footer: Sequence[str]) -> None:
    """What the line of the peak says of cells in place: their intervals, and that the peak is
    precise, since it would be no peak otherwise. Where the table has no `stop`, it also says
    which cell was unstable.
    """
    peak, _, larger = read_table_footer.peak(footer).partition("; ")
    kind = "unstable" if larger.startswith("unstable ") else UNKNOWN_STOP
    for text, stopped in ((peak, "ok"), (larger, kind)):
        named = _CELL.search(text)
        for row in result.rows if named else ():
            assert named is not None
            cell = row.in_place if named["in_place"] else row.out_of_place
            if cell is None or format_size(row.size_bytes) != named["size"]:
                continue
            if stopped == "unstable" or (named["in_place"] and named["percent"]):
                cell.stopped = stopped
            if named["in_place"] and cell.busbw > 0:
                ratio = _of_share(cell.busbw, named["share"], result.ideal) / cell.busbw
                cell.time_s, cell.algbw = cell.time_s / ratio, cell.algbw * ratio
                cell.busbw *= ratio
                _set_printed_interval(cell, named)


def _set_printed_interval(cell: Cell, printed: re.Match[str]) -> None:
    if printed["percent"]:
        _set_interval(cell, float(printed["percent"]))
    elif printed["unknown"]:
        cell.low_s, cell.high_s = 0.0, math.inf
    elif printed["most"] and math.isfinite(cell.time_s) and float(printed["most"]) > 0:
        moved = cell.time_s * cell.busbw * 1e-9
        least = float(printed["least"])
        cell.low_s = moved / float(printed["most"])
        cell.high_s = moved / least if least > 0 else math.inf
