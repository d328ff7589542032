"""What the rows of a benchmark of transfers show, and what they leave open.

A transfer takes a fixed time and a time for its bytes. While the fixed time counts, the rate grows
with the size: nearly in proportion where it is all, not at all where it is nothing. So the rate of
a link shows only at sizes, or with as much in flight, where it grows no more: at the plateau.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from busbw.core.finding import RunFinding, Verdict
from busbw.core.host_ranges import listed
from busbw.core.sizes import counted, format_size
from busbw.model.hardware import generations
from busbw.model.systems import System
from busbw.transfer.types import LATENCY, NIXLBENCH, Transfer, TransferReport, TransferRun
from busbw.ui.number_formats import bandwidth_text, nominal_text, time_text

ROWS, END, FIGURES = "transfer.rows", "transfer.end", "transfer.figures"
ONE_AT_A_TIME = "transfer.latency"
PLATEAU, DROP, SLOW, NIC = "transfer.plateau", "transfer.drop", "transfer.slow", "transfer.nic"
NEAR = 0.1  # rates that differ by no more are of one plateau, however far apart the sizes are
# Powers of the size by which the rate grows: above the first it is not at the plateau, from the
# second on the fixed time is 41 % of the time or more.
GROWS, MOSTLY_FIXED = 0.1, 0.5
LARGE = 1 << 20  # bytes in flight that fill a link of 400 Gbit/s for 21 us
DROPPED = 0.8  # of the highest rate
SLOWEST_NIC = 10e9 / 8  # of hosts with GPUs: 10 Gbit/s Ethernet
OVER = 1.05  # more than this share of what is possible is no rounding
TIMES_OVER = 1.2  # as OVER, by times that are whole microseconds
LEAST_TIME_S = 10e-6  # from which whole microseconds are exact enough
GOOD = 0.9  # of the data that a NIC can carry


@dataclass(frozen=True, slots=True)
class _SizeSeries:
    """The rows of a run in which only one size grows, smallest first: the block's or message's, or
    with one block size the batch.
    """

    rows: Sequence[Transfer]
    by: str

    @property
    def largest(self) -> Transfer:
        return self.rows[-1]

    @property
    def before(self) -> Transfer | None:
        """The fastest of the rows before the largest; None without one."""
        return max(self.rows[:-1], key=lambda row: row.rate, default=None)

    @property
    def growth(self) -> float | None:
        """The power of the size by which the rate grew at the end; None with one size."""
        last, before = self.largest, self.before
        if before is None:
            return None
        return math.log(last.rate / before.rate) / math.log(_bytes(last) / _bytes(before))

    @property
    def peak(self) -> Transfer:
        return max(self.rows, key=lambda row: row.rate)


def _bytes(row: Transfer) -> int:
    """The bytes of a request."""
    return (row.size_bytes or 1) * row.batch


def series_of(report: TransferReport, run: int) -> _SizeSeries | None:
    """The series that tells of the plateau: at the largest batch by block, if there are several
    blocks. The best of rows of one size counts. None if no row has a size and
    a rate.
    """
    rows = [
        row
        for row in report.rows_of(run)
        if row.size_bytes and row.batch and 0 < row.rate < math.inf
    ]
    if not rows:
        return None
    batch = max(row.batch for row in rows)
    at_batch = [row for row in rows if row.batch == batch]
    by_block = len({row.size_bytes for row in at_batch}) > 1 or batch == 1
    chosen = at_batch if by_block else [r for r in rows if r.size_bytes == at_batch[0].size_bytes]
    best: dict[int, Transfer] = {}
    for row in sorted(chosen, key=lambda row: row.rate):
        best[_bytes(row)] = row
    name = "message"
    if report.program == NIXLBENCH:
        name = "block" if by_block else "batch"
    return _SizeSeries([best[size] for size in sorted(best)], name)


def judged(report: TransferReport, system: System) -> TransferReport:
    """The report with its rates compared with those of the system's NICs."""
    return msgspec.structs.replace(
        report, system=system.name or system.gpu, findings=findings(report, system)
    )


def findings(report: TransferReport, system: System | None) -> list[RunFinding]:
    """All findings, run by run; of the NICs one for all runs, if no `system` gives their rate."""
    found = []
    if report.skipped:
        lines = counted(report.skipped, "line")
        message = f"{lines} of tables could not be read: cut off, or no finite figures"
        found.append(RunFinding(ROWS, Verdict.WARN, message))
    if report.unended:
        what = "table" if report.program == NIXLBENCH else "test"
        message = f"{counted(report.unended, what)} did not end: these are the rows so far"
        found.append(RunFinding(END, Verdict.WARN, message))
    for run in range(len(report.runs)):
        name = f"table {run + 1}: " if len(report.runs) > 1 else ""
        of_run = _of_run(report, run, system)
        found += [
            RunFinding(one.id, one.verdict, name + one.message, one.evidence, one.fix)
            for one in of_run
        ]
    if system is None and any(_asks_for_nic(run) for run in report.runs):
        found.append(_without_system(report))
    return found


def _of_run(report: TransferReport, at: int, system: System | None) -> Iterator[RunFinding]:
    run, series = report.runs[at], series_of(report, at)
    wrong = _figures(report, at)
    if wrong is not None:
        yield wrong
        return
    if run.kind == LATENCY:
        message = "a test of latency: its rates say nothing of the bandwidth"
        yield RunFinding(PLATEAU, Verdict.SKIP, message)
        return
    if series is None:
        message = "no row has a size and a rate, so whether the rate still grows is not known"
        fix = "measure larger messages, or add the output of the server"
        yield RunFinding(PLATEAU, Verdict.UNKNOWN, message, fix=fix)
        return
    falls = series.largest.rate < DROPPED * series.peak.rate
    yield _drop(run, series) if falls else _plateau(report, series)
    if not _asks_for_nic(run):
        return
    grows = series.growth is not None and series.growth > GROWS
    if not grows and series.peak.rate < SLOWEST_NIC and _bytes(series.largest) >= LARGE:
        yield _slow(series)
    if system is not None:
        yield _nic(run, series, system, settled=series.growth is not None and not grows)


def _asks_for_nic(run: TransferRun) -> bool:
    return not run.is_storage and run.kind != LATENCY


def _rate(bytes_per_s: float) -> str:
    return f"{bandwidth_text(bytes_per_s)} GB/s"


def _at(row: Transfer) -> str:
    """`1 MiB`, `64 x 4 KiB`."""
    size = format_size(row.size_bytes or 0)
    return size if row.batch == 1 else f"{row.batch} x {size}"


def _figures(report: TransferReport, at: int) -> RunFinding | None:
    """Rates that no link has, or that the times of the same row exclude."""
    run = report.runs[at]
    link, gpu = max((row.links * row.link_rate, row.names[0]) for row in generations())
    for row in sorted(report.rows_of(at), key=lambda row: -row.rate):
        devices = run.devices_in_process
        if row.rate > OVER * link * devices:
            most = f"{counted(devices, 'device')} with " if devices > 1 else ""
            return RunFinding(
                FIGURES,
                Verdict.FAIL,
                f"{_rate(row.rate)} at {_size_or_unknown(row)} is more than any link carries",
                f"{most}NVLink of {gpu}: {nominal_text(link)} GB/s in each direction",
                _counted_early(report),
            )
        if row.request_s is None or row.request_s < LEAST_TIME_S or not row.size_bytes:
            continue
        possible = row.size_bytes * report.in_flight(row) / row.request_s
        if 0 < TIMES_OVER * possible < row.rate:
            return _excluded(report, row, possible)
    return None


def _size_or_unknown(row: Transfer) -> str:
    return _at(row) if row.size_bytes else "an unknown size"


def _counted_early(report: TransferReport) -> str:
    if report.program == NIXLBENCH:
        return "measure again with the newest nixlbench, and with --check_consistency 1"
    return (
        "ucx_perftest counts a message when its send has ended, not when it has arrived: measure"
        " with more iterations (-n), or with ucp_put_bw"
    )


def _excluded(report: TransferReport, row: Transfer, possible: float) -> RunFinding:
    run = report.runs[row.run]
    factor = row.rate / possible
    fix = "measure again with the newest nixlbench"
    if run.devices > 1 and abs(factor / run.devices - 1) < OVER - 1:
        fix += ": builds of March and April 2026 multiply by --num_initiator_dev"
    return RunFinding(
        FIGURES,
        Verdict.FAIL,
        f"rate and times at {_at(row)} exclude each other: {_rate(row.rate)}, but by its times"
        f" {_rate(possible)} at most",
        f"{counted(report.in_flight(row), 'block')} in flight, and a request takes"
        f" {time_text(row.request_s or 0.0)}",
        fix,
    )


def _plateau(report: TransferReport, series: _SizeSeries) -> RunFinding:
    row, growth = series.largest, series.growth
    alone = report.program == NIXLBENCH and report.in_flight(row) == 1
    before = series.before
    if growth is None or before is None:
        if alone and _bytes(row) < LARGE:
            return _one_at_a_time(row, "")
        message = f"one {series.by} size, {_at(row)}: whether the rate still grows is not known"
        return RunFinding(PLATEAU, Verdict.UNKNOWN, message, fix=_MORE_SIZES[series.by])
    evidence = f"{_rate(before.rate)} at {_at(before)}, {_rate(row.rate)} at {_at(row)}"
    if growth <= GROWS and row.rate > (1 + NEAR) * before.rate:
        message = (
            f"{_at(row)} is faster by {row.rate / before.rate - 1:.0%} than the size before it,"
            f" {_at(before)}: whether the rate still grows is not known"
        )
        return RunFinding(PLATEAU, Verdict.UNKNOWN, message, evidence, _MORE_SIZES[series.by])
    if growth <= GROWS:
        message = f"at the plateau: the rate hardly grows any more at {_at(row)}"
        return RunFinding(PLATEAU, Verdict.PASS, message, evidence)
    if alone and growth >= MOSTLY_FIXED:
        return _one_at_a_time(row, evidence)
    message = f"not at the plateau: the rate still grows at {_at(row)}, the largest {series.by}"
    return RunFinding(PLATEAU, Verdict.WARN, message, evidence, _MORE[series.by])


_MORE = {
    "block": "raise --max_block_size, or --max_batch_size",
    "batch": "raise --max_batch_size",
    "message": "measure larger messages (-s)",
}
_MORE_SIZES = {
    "block": "measure several: --start_block_size 65536 --max_block_size 67108864",
    "batch": "measure several: --start_batch_size 1 --max_batch_size 64",
    "message": "measure several: ucx_perftest -b FILE, with a line for each size",
}


def _one_at_a_time(row: Transfer, evidence: str) -> RunFinding:
    return RunFinding(
        ONE_AT_A_TIME,
        Verdict.WARN,
        f"measured latency, not bandwidth: one block of {_at(row)} at a time,"
        f" {time_text(row.time_s)} each, is {_rate(row.rate)}",
        evidence,
        "raise --max_batch_size (blocks of a request) to 64 or more, then --num_threads; or larger"
        " blocks: --max_block_size",
    )


def _drop(run: TransferRun, series: _SizeSeries) -> RunFinding:
    peak, last = series.peak, series.largest
    fix = f"repeat it; if it falls again, send at most {_at(peak)} at a time"
    if run.is_storage:
        fix = "the page cache may hold what is smaller: --storage_enable_direct 1"
    return RunFinding(
        DROP,
        Verdict.WARN,
        f"the rate falls: {_rate(peak.rate)} at {_at(peak)}, {_rate(last.rate)} at {_at(last)}",
        fix=fix,
    )


def _slow(series: _SizeSeries) -> RunFinding:
    peak = series.peak
    return RunFinding(
        SLOW,
        Verdict.WARN,
        f"{_rate(peak.rate)} at {_at(peak)} is less than a link of 10 Gbit/s carries",
        fix="see what carried it, with UCX by UCX_PROTO_INFO=y: TCP, and copies through host"
        " memory, are that slow; UCX_TLS and UCX_NET_DEVICES choose",
    )


def _without_system(report: TransferReport) -> RunFinding:
    names = list(dict.fromkeys(name for run in report.runs for name in run.nics))
    what = "no NIC" if not names else f"{listed(names)}, but no rate of a NIC"
    return RunFinding(
        NIC,
        Verdict.UNKNOWN,
        f"not compared with a NIC: the output names {what}",
        fix="busbw show FILE --system p5.48xlarge, or another system, such as h100x8",
    )


def _nic(run: TransferRun, series: _SizeSeries, system: System, *, settled: bool) -> RunFinding:
    rate, one = series.peak.rate, system.payload_nic
    name = system.name or system.gpu
    if not (system.nics and one):
        reason = system.nics_unknown or f"no NIC of {name} is known"
        return RunFinding(NIC, Verdict.UNKNOWN, f"not compared with a NIC: {reason}")
    every = (
        f"{counted(system.nics, 'NIC')} of {name}, {nominal_text(round(one, -7))} GB/s of data each"
    )
    if rate > OVER * one * system.nics:
        message = f"{_rate(rate)} is more than all NICs carry: NVLink or memory of one host did"
        return RunFinding(NIC, Verdict.WARN, message, every, "measure between two hosts")
    used = len(run.nics) or math.ceil(rate / (OVER * one))
    share = rate / (one * used)
    nics = counted(used, "NIC") + ("" if run.nics else " at least")
    message = f"{_rate(rate)} is {100 * share:.0f} % of what {nics} of {name} can carry"
    if used == 1:
        message = f"{_rate(rate)} is {100 * share:.0f} % of what one NIC of {name} can carry"
    if share > OVER:
        message += ": others took part, or NVLink did"
        return RunFinding(NIC, Verdict.WARN, message, every, "measure between two hosts")
    if share >= GOOD or (used > 1 and not run.nics):
        return RunFinding(NIC, Verdict.PASS, message, every)
    if not settled:
        return RunFinding(NIC, Verdict.UNKNOWN, f"{message}, but not at the plateau", every)
    fix = "busbw link --test perftest tests the NICs themselves; UCX_PROTO_INFO=y names them"
    return RunFinding(NIC, Verdict.WARN, message, every, fix)
