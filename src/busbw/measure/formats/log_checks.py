"""Checks a log of nccl-tests against itself: its rows against its average, its times against its
bandwidths, its ranks, its verdicts.
"""

import math
import statistics
from collections import Counter
from collections.abc import Sequence

from busbw.core.collectives import Collective
from busbw.core.finding import (
    LOG_AVERAGE,
    LOG_COLLECTIVE,
    LOG_FAILED,
    LOG_FIGURES,
    LOG_RANKS,
    LOG_ROWS,
    Finding,
    Verdict,
)
from busbw.core.result import Device, Row
from busbw.core.sizes import counted
from busbw.measure.formats.log_collective import (
    NO_RATIO,
    Evidence,
    contradiction,
    ranks_of,
    ratio_text,
)

LEAST_BYTES, LEAST_ALGBW = 1024, 0.1e9  # below, the printed digits do not say the unit of time
OF_LOG = "read the JSON of the run (-J run.json) instead of its text"


def unread(lines: Sequence[str]) -> list[Finding]:
    """Lines that begin as rows and are none."""
    if not lines:
        return []
    message = f"{counted(len(lines), 'line')} of the table could not be read"
    return [Finding(LOG_ROWS, Verdict.WARN, message, f"the first is: {lines[0]}", OF_LOG)]


def average(rows: Sequence[Row], stated: str) -> list[Finding]:
    """The mean of busbw over all cells is what nccl-tests prints under the table; another one
    means that rows are missing.
    """
    cells = [
        cell.busbw / 1e9
        for row in rows
        for cell in (row.out_of_place, row.in_place)
        if cell is not None
    ]
    said = float(stated) if stated else math.nan
    mean = statistics.fmean(cells) if cells else math.nan
    if (
        not math.isfinite(said)
        or not math.isfinite(mean)
        or abs(mean - said) <= 0.006 + 5e-4 * abs(said)
    ):
        return []
    message = (
        "rows of the table are missing or were changed: their mean is not the average that the log"
        " states"
    )
    evidence = (
        f"mean busbw of {counted(len(cells), 'figure')}: {mean:.4g} GB/s; Avg bus bandwidth:"
        f" {said:g}"
    )
    return [Finding(LOG_AVERAGE, Verdict.WARN, message, evidence, "use the whole log")]


def named(collective: Collective, seen: Evidence, *, inferred: bool) -> list[Finding]:
    """That the collective was inferred, or that the table contradicts the name which the log
    gives.
    """
    if inferred:
        message = f"the log does not name its collective; its table is one of {collective.name}"
        says = [f"busbw / algbw is {ratio_text(seen)}"] if seen.ratio else []
        if seen.operator is not None:
            says.append(
                f"operator {seen.operator}" if seen.operator not in ("", "none") else "no operator"
            )
        if seen.rooted is not None:
            says.append("a root" if seen.rooted else "no root")
        return [Finding(LOG_COLLECTIVE, Verdict.PASS, message, ", ".join(says))]
    if seen.ratio == NO_RATIO:
        message = (
            "rows of the table contradict each other: busbw / algbw is one number for a collective"
            " and its ranks"
        )
        return [Finding(LOG_FIGURES, Verdict.WARN, message, "", "use the log as it was printed")]
    if why := contradiction(collective, seen):
        message = (
            f"the log names {collective.name}, and its table is of another collective or number of"
            " ranks"
        )
        return [Finding(LOG_FIGURES, Verdict.WARN, message, why, "use the log of one run")]
    return []


def thousands(rows: Sequence[Row]) -> int:
    """The power of 1000 by which size / (time x algbw) is off: 0 in a table of microseconds, -1
    of milliseconds read as microseconds.
    """
    cells = [
        (row.size_bytes, cell)
        for row in rows
        for cell in (row.out_of_place, row.in_place)
        if cell is not None
    ]
    found = [
        math.log(size / (cell.time_s * cell.algbw), 1000)
        for size, cell in cells
        if cell.cpu_time_s is None
        and size >= LEAST_BYTES
        and cell.time_s > 0
        and cell.algbw >= LEAST_ALGBW
        if math.isfinite(cell.time_s * cell.algbw)
    ]
    return round(statistics.median(found)) if found else 0


def time_unit(rows: Sequence[Row]) -> list[Finding]:
    """Times that do not agree with algbw."""
    off = thousands(rows)
    if not off:
        return []
    message = (
        f"times and bandwidths of the table do not agree: size / algbw is {1000.0**off:g} times the"
        " time"
    )
    return [
        Finding(
            LOG_FIGURES,
            Verdict.WARN,
            message,
            "",
            "use the log as it was printed, with its line of units",
        )
    ]


def known_devices(
    devices: Sequence[Device], per_process: int
) -> tuple[list[Device], list[Finding]]:
    """The devices if the log lists one for every rank; else none, and what is missing.

    `per_process` is the header's, 0 without one.
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
        return [], [
            _ranks(
                message, "", "build nccl-tests with MPI=1, and start all processes with one mpirun"
            )
        ]
    # Each GPU of -g can be a process of its own, as with busbw.
    ranks = max(listed[-1] + 1, 0 if processes == len(listed) else per_process * processes)
    if ranks == len(listed) and listed == list(range(ranks)):
        return list(devices), []
    shown = "; ".join(f"rank {device.rank} on {device.host}" for device in devices[:3])
    message = (
        f"the log lists {len(set(listed))} of {counted(ranks, 'rank')}: hosts and GPUs of the"
        " others are unknown"
    )
    return [], [_ranks(message, f"it lists {shown}", "use the whole log")]


def other_ranks(listed: int, collective: Collective, seen: Evidence) -> Finding:
    """That busbw / algbw is that of another number of ranks than the log lists."""
    least, most = ranks_of(collective, seen) or (0, 0)
    wanted = f"{least:g}" if least == most else f"{least:g} or more"
    message = (
        f"the log lists {counted(listed, 'rank')}, and busbw / algbw is that of {collective.name}"
        f" with {wanted}"
    )
    return _ranks(message, f"busbw / algbw is {ratio_text(seen)}", "use the log of one run")


def _ranks(message: str, evidence: str, fix: str) -> Finding:
    return Finding(LOG_RANKS, Verdict.WARN, message, evidence, fix)


def failed(average_failed: bool, failures: Sequence[str]) -> list[Finding]:
    """What the run itself said of its end."""
    said = (["its average is below 0.9 x NCCL_TESTS_MIN_BW"] if average_failed else []) + list(
        failures
    )
    return (
        [Finding(LOG_FAILED, Verdict.FAIL, f"the run failed: {said[0]}", "; ".join(said[1:4]))]
        if said
        else []
    )
