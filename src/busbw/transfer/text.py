"""Benchmarks of transfers as text: a table for each run, and the findings."""

from collections.abc import Iterator, Sequence

from busbw.core.host_ranges import listed
from busbw.core.sizes import counted, format_size
from busbw.transfer.types import LATENCY, NIXLBENCH, Transfer, TransferReport, TransferRun
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import bandwidth_text, finding_text, text_or_unknown, time_text

DROP_ORDER = ("median", "all pairs (GB/s)", "request")
TENTHS_BELOW_S = 1e-4  # above, time_text has no more digits
# since 0.5.1, when `request` came: execTransferLoop and printStats of nixlbench
MEANINGS = (
    "# time per block: the whole time of a thread, with preparing and posting its requests, over"
    " all their blocks\n"
    "# request: from the return of its post to its end, mean; 99 %: what 99 % of requests"
    " take at most\n"
)
DERIVED = (
    "# sizes follow from rate and time; ucx_perftest's server prints them, and the kind of memory\n"
)


def render(report: TransferReport, width: int | None = None) -> str:
    parts = []
    for number, run in enumerate(report.runs):
        rows = report.rows_of(number)
        if not rows:
            continue
        number_text = f"table {number + 1}: " if len(report.runs) > 1 else ""
        parts.append(wrapped(f"# {number_text}{described(report, run)}\n", width))
        parts.append(aligned(list(_columns(report, run, rows)), rows, width, DROP_ORDER) + "\n")
    notes = MEANINGS if any(row.request_s is not None for row in report.rows) else ""
    notes += DERIVED if any(row.derived for row in report.rows) else ""
    findings = "".join(wrapped(finding_text(finding), width) for finding in report.findings)
    return "".join(parts) + wrapped(notes, width) + findings


def described(report: TransferReport, run: TransferRun) -> str:
    """`nixlbench, UCX: WRITE from VRAM to VRAM, pairwise SG, 4 threads, NICs mlx5_0, mlx5_1`."""
    program = ", ".join(filter(None, (report.program, run.backend)))
    memory = ""
    if run.is_storage:
        memory = f" between {run.source} memory and storage" if run.source else ""
    elif run.source or run.target:
        memory = f" from {run.source or 'unknown'} to {run.target or 'unknown'} memory"
    what = run.operation or ("latency" if run.kind == LATENCY else "transfers")
    facts = [f"{what}{memory}", "" if run.source or run.target else "memory not named", run.scheme]
    if run.threads is not None:
        facts.append(counted(run.threads, "thread"))
    if run.depth > 1:
        facts.append(f"{run.depth} requests in flight")
    if run.devices > 1:
        facts.append(counted(run.devices, "initiator device"))
    if run.nics:
        facts.append(f"{'NIC' if len(run.nics) == 1 else 'NICs'} {listed(run.nics)}")
    return f"{program}: {', '.join(filter(None, facts))}"


def summary(report: TransferReport) -> str:
    """`nixlbench, UCX: ...: 46.04 GB/s at 8 MiB`."""
    best = max(report.rows, key=lambda row: row.rate, default=None)
    if best is None:
        return f"{report.program}: no row"
    where = described(report, report.runs[best.run])
    size = format_size(best.size_bytes) if best.size_bytes else "an unknown size"
    return f"{where}: up to {bandwidth_text(best.rate)} GB/s, at {size}"


def _columns(
    report: TransferReport, run: TransferRun, rows: Sequence[Transfer]
) -> Iterator[Column]:
    nixl = report.program == NIXLBENCH
    yield Column(
        title="block" if nixl else "message",
        value=lambda row: text_or_unknown(row.size_bytes, format_size),
    )
    if nixl:
        yield Column(title="batch", value=lambda row: row.batch)
    yield Column(title="GB/s", value=lambda row: bandwidth_text(row.rate))
    if any(row.total_rate is not None for row in rows):
        yield Column(
            title="all pairs (GB/s)",
            value=lambda row: text_or_unknown(row.total_rate, bandwidth_text),
        )
    title = "time per block" if nixl else "time per message"
    if run.kind == LATENCY:
        title = "mean latency"
    yield _time(title, "time_s", nixl=nixl)
    for title, name in (("request", "request_s"), ("median", "median_s"), ("99 %", "p99_s")):
        if any(getattr(row, name) is not None for row in rows):
            yield _time(title, name, nixl=nixl)


def _time(title: str, name: str, *, nixl: bool) -> Column:
    text = _tenths_text if nixl else time_text
    return Column(title=title, value=lambda row: text_or_unknown(getattr(row, name), text))


def _tenths_text(seconds: float) -> str:
    """As time_text, without more digits than nixlbench prints: tenths of a microsecond."""
    return f"{seconds * 1e6:.1f} us" if seconds < TENTHS_BELOW_S else time_text(seconds)
