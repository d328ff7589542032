"""Checks a log of nccl-tests against itself.

It compares the rows with the average that the log states, times with bandwidths, and the devices
with the ranks, and it reports the verdicts of the log.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from busbw.core.collectives import Collective
from busbw.core.finding import (
    LOG_AVERAGE,
    LOG_COLLECTIVE,
    LOG_FAILED,
    LOG_FIGURES,
    LOG_RANKS,
    LOG_ROWS,
    LOG_TABLES,
    RunFinding,
    Verdict,
)
from busbw.core.result import Cell, RankDevice, ResultRow
from busbw.core.sizes import counted
from busbw.measure.formats.log_collective import (
    NO_RATIO,
    TableEvidence,
    contradiction,
    ranks_of,
    ratio,
    ratio_text,
)
from busbw.measure.formats.read_nccl_tests_log import LoggedTable
from busbw.measure.formats.read_nccl_tests_rows import Read

MIN_BYTES, MIN_ALGBW = 1024, 0.1e9  # below, the printed digits do not say the unit of time
OF_LOG = "use the whole log, or the JSON of the run (-J run.json)"


def unread_rows(lines: Sequence[str]) -> list[RunFinding]:
    """The finding of lines that begin like rows but are not rows."""
    if not lines:
        return []
    message = f"{counted(len(lines), 'line')} of the table could not be read"
    return [RunFinding(LOG_ROWS, Verdict.WARN, message, f"the first is: {lines[0]}", OF_LOG)]


def average(rows: Sequence[ResultRow], stated: str) -> list[RunFinding]:
    """The finding that the average in the log is not the mean of busbw over all cells.

    nccl-tests prints that mean under the table, so another value means that rows are missing.
    """
    busbws = [cell.busbw / 1e9 for _, cell in _cells(rows)]
    average = float(stated) if stated else math.nan
    mean = statistics.fmean(busbws) if busbws else math.nan
    if not math.isfinite(average) or not math.isfinite(mean):
        return []
    if abs(mean - average) <= 0.006 + 5e-4 * abs(average):
        return []
    message = (
        "rows of the table are missing or were changed: their mean is not the average that the log"
        " states"
    )
    evidence = (
        f"mean busbw of {counted(len(busbws), 'figure')}: {mean:.4g} GB/s; Avg bus bandwidth:"
        f" {average:g}"
    )
    return [RunFinding(LOG_AVERAGE, Verdict.WARN, message, evidence, "use the whole log")]


def _cells(rows: Sequence[ResultRow]) -> list[tuple[ResultRow, Cell]]:
    """Each cell that was measured, with its row."""
    cells = []
    for row in rows:
        cells += [(row, cell) for cell in (row.out_of_place, row.in_place) if cell is not None]
    return cells


def of_collective(
    collective: Collective, evidence: TableEvidence, *, inferred: bool
) -> list[RunFinding]:
    """The finding that the collective was inferred, or contradicts its name in the log."""
    if inferred:
        message = f"the log does not name its collective; its table is one of {collective.name}"
        signs = [f"busbw / algbw is {ratio_text(evidence)}"] if evidence.ratio else []
        if evidence.operator in ("", "none"):
            signs.append("no operator")
        elif evidence.operator is not None:
            several = evidence.operator == "all"
            signs.append("several operators" if several else f"operator {evidence.operator}")
        if evidence.rooted is not None:
            signs.append("a root" if evidence.rooted else "no root")
        return [RunFinding(LOG_COLLECTIVE, Verdict.PASS, message, ", ".join(signs))]
    if evidence.ratio == NO_RATIO:
        message = (
            "rows of the table contradict each other: busbw / algbw is one number for a collective"
            " and its ranks"
        )
        return [RunFinding(LOG_FIGURES, Verdict.FAIL, message, "", "use the log as it was printed")]
    why = contradiction(collective, evidence)
    if why:
        message = (
            f"the log names {collective.name}, and its table is of another collective or number of"
            " ranks"
        )
        return [RunFinding(LOG_FIGURES, Verdict.FAIL, message, why, "use the log of one run")]
    return []


def of_ratio(collective: Collective, rows: Sequence[ResultRow], ranks: int) -> list[RunFinding]:
    """The finding that figures without a table are of another collective or number of ranks."""
    evidence = TableEvidence(
        ratio=ratio(rows),
        parts=None,
        operator=None,
        rooted=None,
        in_place_checked=None,
        ranks=ranks,
        old=False,
        first=False,
        blank=False,
    )
    off = disagreement(rows)
    if not 0.9 < off < 1.1:
        message = (
            f"size / (time x algbw) is {off:.3g}, not 1: times and algbw contradict each other"
        )
        return [
            RunFinding(LOG_FIGURES, Verdict.FAIL, message, "", "give the file as it was written")
        ]
    return of_collective(collective, evidence, inferred=False)


def disagreement(rows: Sequence[ResultRow]) -> float:
    """Size / (time x algbw) in the middle of the rows: 1 if they agree, or nothing tells."""
    ratios = []
    for row, cell in _cells(rows):
        moved_bytes = cell.time_s * cell.algbw
        if cell.cpu_time_s is not None or cell.time_s <= 0 or not math.isfinite(moved_bytes):
            continue
        if MIN_BYTES <= row.size_bytes < 1 << 63 and cell.algbw >= MIN_ALGBW:
            ratios.append(row.size_bytes / moved_bytes)
    return statistics.median(ratios) if ratios else 1.0


def thousands(rows: Sequence[ResultRow]) -> int:
    """The power of 1000 by which size / (time x algbw) is off.

    It is 0 in a table of microseconds, -1 in one of milliseconds read as microseconds.
    """
    return round(math.log(disagreement(rows), 1000))


def wrong_data(read: Sequence[Read], collective: Collective) -> list[RunFinding]:
    """The finding of deviations in data that was only moved.

    The first alltoall had them in place, where it overwrites what it has yet to send.
    """
    deviating = [] if collective.reduces else [row for row in read if any(row.deviates)]
    if not deviating:
        return []
    message = (
        f"{counted(len(deviating), 'row')} of the table had wrong data: its error is above 0, and"
        f" {collective.name} sums nothing"
    )
    only_in_place = all(row.deviates == (False, True) for row in deviating)
    evidence = "in place only" if only_in_place else ""
    verdict = Verdict.WARN if only_in_place else Verdict.FAIL
    return [RunFinding(LOG_FIGURES, verdict, message, evidence, "do not use these figures")]


def time_unit(rows: Sequence[ResultRow]) -> list[RunFinding]:
    """The finding of times that do not agree with algbw."""
    off = thousands(rows)
    if not off:
        return []
    message = (
        f"times and bandwidths of the table do not agree: size / algbw is {1000.0**off:g} times the"
        " time"
    )
    fix = "use the log as it was printed, with its line of units"
    return [RunFinding(LOG_FIGURES, Verdict.WARN, message, "", fix)]


def known_devices(
    devices: Sequence[RankDevice], per_process: int
) -> tuple[list[RankDevice], list[RunFinding]]:
    """The devices if the log lists one for every rank; else none, and the finding of what is
    missing.

    `per_process` is the number of ranks of a process by the header, 0 without one.
    """
    listed = sorted(device.rank for device in devices)
    if not devices:
        return [], []
    processes = len({(device.host, device.pid) for device in devices})
    rank, often = Counter(listed).most_common(1)[0]
    if often > 1 and processes > 1:
        message = (
            f"{often} processes call themselves rank {rank}: they ran apart, each with its own GPUs"
        )
        fix = "build nccl-tests with MPI=1, and start all processes with one mpirun"
        return [], [_of_ranks(message, "", fix)]
    # Each GPU of -g can be a process of its own, as with busbw.
    ranks = max(listed[-1] + 1, 0 if processes == len(listed) else per_process * processes)
    if ranks == len(listed) and listed == list(range(ranks)):
        return list(devices), []
    shown = "; ".join(f"rank {device.rank} on {device.host}" for device in devices[:3])
    message = (
        f"the log lists {len(set(listed))} of {counted(ranks, 'rank')}: hosts and GPUs of the"
        " others are unknown"
    )
    return [], [_of_ranks(message, f"it lists {shown}", "use the whole log")]


def other_ranks(listed: int, collective: Collective, evidence: TableEvidence) -> RunFinding:
    """The finding that busbw / algbw is that of another number of ranks than the log lists."""
    least, largest = ranks_of(collective, evidence) or (0, 0)
    ranks = f"{least:g}" if least == largest else f"{least:g} or more"
    message = (
        f"the log lists {counted(listed, 'rank')}, and busbw / algbw is that of {collective.name}"
        f" with {ranks}"
    )
    return _of_ranks(message, f"busbw / algbw is {ratio_text(evidence)}", "use the log of one run")


def _of_ranks(message: str, evidence: str, fix: str) -> RunFinding:
    return RunFinding(LOG_RANKS, Verdict.WARN, message, evidence, fix)


def other_tables(bad: Sequence[int]) -> list[RunFinding]:
    """The finding of wrong data or a failure in tables of the log that are not read, by number."""
    if not bad:
        return []
    numbers = ", ".join(map(str, bad))
    message = f"wrong data or a failure in another table of the log: {numbers}"
    return [RunFinding(LOG_FAILED, Verdict.FAIL, message, "", f"see it with --table {bad[0]}")]


def without_rows(runs: Iterable[LoggedTable]) -> Iterator[RunFinding]:
    """A finding for each other run of the log that has no row."""
    for run in runs:
        name = run.facts.get("program", "another run")
        errors = run.errors + run.failures
        if errors:
            message = f"{name} in this log failed before its first row: {errors[0]}"
            yield RunFinding(LOG_FAILED, Verdict.FAIL, message, "; ".join(errors[1:4]))
        elif not run.unread:
            message = f"{name} in this log has no row: it did not end, or its rows are missing"
            yield RunFinding(LOG_TABLES, Verdict.WARN, message, "", "use the whole log")


def failed(average_failed: bool, failures: Sequence[str]) -> list[RunFinding]:
    """The finding of a failure that the log itself states."""
    reasons = list(failures)
    if average_failed:
        reasons.insert(0, "its average is below 0.9 x NCCL_TESTS_MIN_BW")
    if not reasons:
        return []
    message = f"the run failed: {reasons[0]}"
    return [RunFinding(LOG_FAILED, Verdict.FAIL, message, "; ".join(reasons[1:4]))]
