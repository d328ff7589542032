"""Reads what nixlbench prints (ai-dynamo/nixl, benchmark/nixlbench, 0.2 and later).

`printStats` in src/utils/utils.cpp makes the table. GB is 10^9 bytes. `Avg Lat.` is the time of a
thread divided by its requests and by the blocks of a request, so it is no latency of a request;
that is `Avg Tx`, from the return of its post to its end, which is printed since 0.5.1. `Avg Lat.`
also has the time of preparing and posting, so of one block at a time it is the longer one. Before
1.1 it was also divided by the number of threads.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from busbw.transfer.types import NIXLBENCH, Transfer, TransferReport, TransferRun

CONFIGURATION = "NIXLBench Configuration"
BLOCK, BATCH, RATE, TOTAL = "Block Size (B)", "Batch Size", "B/W (GB/Sec)", "Aggregate B/W (GB/Sec)"
TIME, REQUEST, P99 = "Avg Lat. (us)", "Avg Tx (us)", "P99 Tx (us)"
US = 1e-6
LONGEST_LINE = 4096
_MOST_THREADS = 4096
_TITLE = re.compile(r"Batch Size|[A-Z][A-Za-z0-9/. ]{0,40}\([^)]{1,12}\)")
_OPTION = re.compile(r"\(--(\w{1,40})=[^)]{0,200}\)\s*: (.*?)\s*$")
_FIGURE = re.compile(r"\d{1,18}(?:\.\d{0,9})?(?:[eE][+-]?\d{1,3})?")
_WHOLE = re.compile(r"\d{1,15}")
_LABEL = re.compile(r".*[>:|\])](?=\d+$)")  # that a launcher puts before a line without a space
_LAST_FIGURE = re.compile(r"\d\.\d$")  # of all columns after the rates, since 0.5.1


@dataclass(slots=True)
class _TableReading:
    """What was read so far. `options` are those since the last configuration, `titles` those of
    the table that goes on.
    """

    report: TransferReport = field(default_factory=lambda: TransferReport(program=NIXLBENCH))
    options: dict[str, str] = field(default_factory=dict)
    titles: tuple[str, ...] = ()

    def line(self, text: str, *, ended: bool) -> None:
        """Take a line; `ended` says whether it has its end, without which a figure may be cut."""
        if CONFIGURATION in text:
            self.end_table()
            self.options = {}
        option = _OPTION.search(text)
        if option is not None:
            self.options.setdefault(option[1], option[2])
        elif BLOCK in text and RATE in text:
            self.end_table()
            self.titles = tuple(_TITLE.findall(text[text.index(BLOCK) :]))
            self.report.runs.append(run_of(self.options))
        elif self.titles:
            self._row(text, whole=ended or bool(_LAST_FIGURE.search(text)))

    def end_table(self) -> None:
        """Note whether the table has its largest block, which nixlbench doubles up to a limit."""
        if not self.titles:
            return
        rows = self.report.rows_of(len(self.report.runs) - 1)
        if not self.options and rows:
            at_once = median(map(_blocks_at_once, rows))
            self.report.runs[-1].threads = round(at_once) if 1.5 < at_once < _MOST_THREADS else None
        limit = _number(self.options.get("max_block_size"))
        if limit is not None and not any(2 * (row.size_bytes or 0) > limit for row in rows):
            self.report.unended += 1
        self.titles = ()

    def _row(self, text: str, *, whole: bool) -> None:
        words = text.split()
        words = words[-len(self.titles) :]
        words[:1] = [_LABEL.sub("", word) for word in words[:1]]
        if not all(_WHOLE.fullmatch(word) for word in words[:2]) or len(words) < 3:
            return
        row = None
        if whole and len(words) == len(self.titles):
            row = _transfer(dict(zip(self.titles, words, strict=True)), self.report)
        if row is None:
            self.report.skipped += 1
        else:
            self.report.rows.append(row)


def read(text: str) -> TransferReport:
    """All tables of the output, without rows if it has none; lines may have labels before them."""
    reading = _TableReading()
    lines = text.splitlines(keepends=True)
    for line in lines:
        if len(line) <= LONGEST_LINE:
            stripped = line.rstrip("\r\n")
            reading.line(stripped, ended=stripped != line or stripped.endswith("  "))
    reading.end_table()
    return reading.report


def run_of(options: Mapping[str, str]) -> TransferRun:
    """The run of the options that nixlbench prints before its table."""
    worker, backend = options.get("worker_type", ""), options.get("backend", "")
    nics = options.get("device_list", "")
    return TransferRun(
        backend=backend or ("NVSHMEM" if worker == "nvshmem" else ""),
        operation=options.get("op_type", ""),
        source=options.get("initiator_seg_type", ""),
        target=options.get("target_seg_type", ""),
        scheme=" ".join(filter(None, (options.get("scheme"), options.get("mode")))),
        threads=_number(options.get("num_threads")),
        depth=_number(options.get("pipeline_depth")) or 1,
        devices=_number(options.get("num_initiator_dev")) or 1,
        nics=[] if nics in ("", "all") else _names(nics.split(",")),
    )


def _names(words: Iterable[str]) -> list[str]:
    return [word.strip() for word in words if word.strip()]


def _number(text: str | None) -> int | None:
    return int(text) or None if text is not None and _WHOLE.fullmatch(text) else None


def _transfer(cells: Mapping[str, str], report: TransferReport) -> Transfer | None:
    """The row; None if a figure that it needs is missing, is 0 or not finite."""
    size, batch = _number(cells.get(BLOCK)), _number(cells.get(BATCH, "1"))
    rate, time_us = _figure(cells.get(RATE)), _figure(cells.get(TIME))
    if not size or not batch or rate is None or not time_us:
        return None
    total, request, p99 = (_figure(cells.get(title)) for title in (TOTAL, REQUEST, P99))
    row = Transfer(
        run=len(report.runs) - 1,
        size_bytes=size,
        batch=batch,
        rate=rate * 1e9,
        total_rate=None if total is None else total * 1e9,
        time_s=time_us * US,
        request_s=request * US if request else None,
        p99_s=p99 * US if p99 else None,
    )
    row.time_s *= _threads_in_time(row, report.runs[-1])
    return row


def _threads_in_time(row: Transfer, run: TransferRun) -> int:
    """By how many threads `Avg Lat.` was divided: by none since 1.1, by all before."""
    threads = run.threads or 1
    return threads if _blocks_at_once(row) < math.sqrt(threads) else 1


def _blocks_at_once(row: Transfer) -> float:
    """As many as threads, if the time is that of one; 1 if it was divided by them."""
    return row.rate * row.time_s / (row.size_bytes or 1)


def _figure(text: str | None) -> float | None:
    """The number; None without one, and for one that is not finite."""
    if text is None or _FIGURE.fullmatch(text) is None:
        return None
    value = float(text)
    return value if math.isfinite(value) else None
