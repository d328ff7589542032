"""Reads what ucx_perftest prints (openucx/ucx, src/tools/perf, UCX 1.2 and later).

`print_progress` in perftest_run.c makes the rows: times in us, bandwidth in units of 2^20 bytes
under the title MB/s. A row is progress until the last one of a test, which has `Final:` since 1.9.
Only the server prints the size and the memory, in a box of its own, which stands anywhere beside
the client's rows, or in another file. But a rate times the time of a message is its size.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from busbw.transfer.types import (
    BANDWIDTH,
    LATENCY,
    UCX_PERFTEST,
    Transfer,
    TransferReport,
    TransferRun,
)
from busbw.transfer.ucx_size import SizeRange, message_size

US = 1e-6
MIB = float(1 << 20)
LONGEST_LINE = 4096
TITLES, FINAL = "# iterations |", "Final:"
_FIGURE = re.compile(r"\d[\d,]{0,24}(?:\.\d{1,9})?|-?(?:nan|inf)")
_TITLE_OF_TIMES = re.compile(r"\b(overhead|latency) \(usec\)")
_PERCENTILE = re.compile(r"(\d{1,3}\.\d)(?:%ile|_percentile_lat)|\b(typical)")
_CSV = re.compile(r"(?:^|,)iterations,[\w.]{1,24}_lat,avg_lat,overall_lat,avg_bw,")
_BOX = re.compile(r"\| (API|Test|Send memory|Recv memory|Message size): +(.*?)\s*\|?\s*$")
_TEST_TITLE = re.compile(r"\| +Test +\|")  # with -f: each row is of another test
_THREAD = re.compile(r"\[thread (\d{1,5})\]")
_TEST = re.compile(r"\b(?!ib_)(?:[a-z]+_){1,5}(?:bw|lat|mr)\b|\bucp_get\b")
_NIC = re.compile(r"\b((?:mlx[45]|bnxt_re|irdma|rdmap|efa|rocep|ibp)[\w]{0,24})(?::\d{1,2})?[/\s,]")
ALL_FIGURES, SUM_OF_THREADS = 8, 4


@dataclass(slots=True)
class _ServerBox:
    """The server's description of a test, and the number of its line."""

    line: int
    values: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int | None:
        text = self.values.get("Message size", "")
        return int(text) or None if re.fullmatch(r"\d{1,15}", text) else None


@dataclass(slots=True)
class _Printed:
    """The last row of a test: `rate` is in MiB/s. `threads` are those that reported, if known."""

    line: int
    time_us: float
    rate: float
    percentile_us: float | None
    percentile: float
    sizes: SizeRange
    kind: str
    test: str
    threads: int | None = None


@dataclass(slots=True)
class _TestLog:
    """What was read so far; `open` is the progress of each thread of a test that has not ended."""

    printed: list[_Printed] = field(default_factory=list)
    boxes: list[_ServerBox] = field(default_factory=list)
    nics: dict[str, None] = field(default_factory=dict)  # a set that keeps the order
    open: dict[int, _Printed] = field(default_factory=dict)
    skipped: int = 0
    kind: str = ""
    percentile: float = 50.0
    csv: bool = False
    table: bool = False
    final_only: bool = False
    has_final: bool = False  # whether a test that ended has a final row, marked as such
    unended: int = 0
    name: list[str] = field(default_factory=list)  # of the open test, in CSV
    test: str = ""

    def line(self, at: int, text: str, *, cut: bool) -> None:
        """Take the next line; `cut` is one without its end."""
        box = _BOX.search(text)
        if box is not None:
            self._boxed(at, box[1], box[2])
        elif _CSV.search(text) or TITLES in text or _TITLE_OF_TIMES.search(text):
            self._titles(text)
        elif not (self.table and self._row(at, text, cut)):
            self._other(text)

    def _boxed(self, at: int, name: str, value: str) -> None:
        if name == "API" or not self.boxes:
            self.boxes.append(_ServerBox(at))
        self.boxes[-1].values[name] = value

    def _titles(self, text: str) -> None:
        self.end_test()
        times = _TITLE_OF_TIMES.search(text)
        if times is not None:  # the line above that of the columns
            self.kind = {"overhead": BANDWIDTH, "latency": LATENCY}[times[1]]
            return
        self.table, self.csv = True, TITLES not in text
        self.final_only = _TEST_TITLE.search(text) is not None
        self.has_final = "Stage" in text
        if self.csv or not (self.final_only or self.has_final):
            self.kind = ""  # `latency` stands above all tests there
        rank = _PERCENTILE.search(text)
        self.percentile = float(rank[1]) if rank is not None and rank[1] else 50.0

    def _other(self, text: str) -> None:
        if text.startswith("+") and not text.startswith("+--"):
            self.end_test()  # the name of a test of a batch file
        self.nics.update(dict.fromkeys(match[1] for match in _NIC.finditer(f"{text} ")))
        if test := _TEST.findall(text):
            self.test = test[-1]

    def _row(self, at: int, text: str, cut: bool) -> bool:
        """Take a row; False for another line. Without its end, the last figure may be cut: that of
        a longer row is not used.
        """
        thread = _THREAD.search(text)
        row_text = text[thread.end() :] if thread else text.rpartition(FINAL)[2]
        figures = _run_of_figures((row_text.replace(",", " ") if self.csv else row_text).split())
        count = next((n for n in (ALL_FIGURES, SUM_OF_THREADS) if len(figures) in (n, n + 1)), 0)
        finite = all(word[0].isdigit() for word in figures)
        part = count == SUM_OF_THREADS and (cut or not _is_sum(figures[-count:]))
        if not (count and finite) or part:
            broken = bool(count) or FINAL in text
            self.skipped += broken
            return broken
        row = self._printed(at, [float(word.replace(",", "")) for word in figures[-count:]], text)
        if not row.time_us or (thread and count == SUM_OF_THREADS):
            self.skipped += 1
        elif thread is not None:
            self.open[int(thread[1])] = row
        elif FINAL in text or self.final_only or count == SUM_OF_THREADS:
            row.threads = 1 if count == ALL_FIGURES else len(self.open) or None
            self.open.clear()
            self.printed.append(row)
        else:  # the last one counts: in CSV before a row of another name, else before other titles
            name = text.split(",")[: -ALL_FIGURES if self.csv else 0]
            if name != self.name:
                self.end_test()
            self.name, self.open = name, {0: row}
        return True

    def _printed(self, at: int, figures: list[float], text: str) -> _Printed:
        percentile_us = None
        if len(figures) == SUM_OF_THREADS:
            _, time_us, rate, messages = figures
            sizes = SizeRange.quotient(rate, 0.005, messages, 0.5, MIB)
        else:
            _, percentile_us, _, time_us, _, rate, _, _ = figures
            sizes = SizeRange.product(rate, 0.005, time_us, 0.0005, MIB * US)
        name = _TEST.search(text)
        return _Printed(
            line=at,
            time_us=time_us,
            rate=rate,
            percentile_us=percentile_us,
            percentile=self.percentile,
            sizes=sizes,
            kind=self.kind,
            test=name[0] if name else self.test,
        )

    def end_test(self) -> None:
        """Take the last progress of a test without a final row: of several threads their sum."""
        rows = list(self.open.values())
        self.open.clear()
        if not rows:
            return
        self.unended += self.has_final
        row = rows[-1]
        row.threads = len(rows)
        if len(rows) > 1:
            row.percentile_us = None
            row.time_us = sum(each.time_us for each in rows) / len(rows)
            row.rate = sum(each.rate for each in rows)
        self.printed.append(row)


def _is_sum(figures: Sequence[str]) -> bool:
    """Whether these can be a sum of threads: iterations, a time, a rate with two decimals, and
    messages. Otherwise they are a part of a longer row that was wrapped.
    """
    iterations, _, rate, messages = figures
    return "." not in iterations + messages and rate[-3:-2] == "."


def _run_of_figures(words: Sequence[str]) -> list[str]:
    """The first words of a line that are figures, one after the other."""
    figures: list[str] = []
    for word in words:
        if _FIGURE.fullmatch(word):
            figures.append(word)
        elif figures:
            break
    return figures


def read(text: str) -> TransferReport:
    """All tests of the output, without rows if it has none; lines may have labels before them."""
    log = _TestLog()
    lines = text.split("\n")
    for at, line in enumerate(lines, 1):
        if len(line) <= LONGEST_LINE:
            log.line(at, line.rstrip(), cut=at == len(lines))
    log.end_test()
    report = TransferReport(program=UCX_PERFTEST, skipped=log.skipped, unended=log.unended)
    for printed in log.printed:
        box = _box_of(printed, log.boxes)
        if box is not None:
            log.boxes.remove(box)  # each is of one test
        _add(report, printed, box, list(log.nics))
    return report


def _box_of(printed: _Printed, boxes: Sequence[_ServerBox]) -> _ServerBox | None:
    """The nearest box of a size that fits the row."""
    fitting = [box for box in boxes if box.size is not None and box.size in printed.sizes]
    return min(fitting, key=lambda box: abs(box.line - printed.line), default=None)


def _add(
    report: TransferReport, printed: _Printed, box: _ServerBox | None, nics: list[str]
) -> None:
    """Add the row, in the run that has the same description, or in a new one."""
    values = box.values if box else {}
    test = values.get("Test") or printed.test
    kind = printed.kind
    for word, means in ((BANDWIDTH, BANDWIDTH), ("_bw", BANDWIDTH), ("lat", LATENCY)):
        kind = kind or (means if word in test else "")
    run = TransferRun(
        operation=test,
        kind=kind,
        source=values.get("Send memory", ""),
        target=values.get("Recv memory", ""),
        threads=printed.threads,
        nics=nics,
    )
    if run not in report.runs:
        report.runs.append(run)
    size = box.size if box else message_size(printed.sizes)
    percentile_s = printed.percentile_us * US if printed.percentile_us else None
    if kind != LATENCY:
        percentile_s = None
    report.rows.append(
        Transfer(
            run=report.runs.index(run),
            size_bytes=size,
            derived=box is None and size is not None,
            rate=printed.rate * MIB,
            time_s=printed.time_us * US,
            median_s=percentile_s if printed.percentile == 50 else None,
            p99_s=percentile_s if printed.percentile == 99 else None,
        )
    )
