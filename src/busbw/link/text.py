"""A link test as text: a line for each port, a matrix of characters, and the findings.

Text and HTML page share the rates of a rail as a matrix, senders by receivers, and the color of a
share of the reference rate.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from busbw.core.host_ranges import listed
from busbw.core.sizes import counted, format_size
from busbw.link.types import TCP, LinkReport, PairFlow, Suspect, SuspectReport, bits_text
from busbw.stats.intervals import nearest_rank
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import BARS, finding_text, text_or_unknown, time_text

Matrix = Sequence[Sequence[PairFlow | None]]
Color = tuple[int, int, int]
# Shares of the reference rate and their colors, from slow (dark, red) to fast. They can be
# distinguished by lightness only.
SCALE: tuple[tuple[float, Color], ...] = (
    (0.25, (98, 10, 30)),
    (0.6, (205, 62, 40)),
    (0.85, (247, 183, 100)),
    (1.0, (226, 242, 233)),
)
DROP_ORDER = ("port", "99 %", "resent", "least", "latency")
FAILED, SELF, ABSENT = "x", ".", " "
QUIETER_HINT = "run it while nothing else uses the hosts, or with a larger --size"
LABEL = 5  # characters before a row of the matrix


def matrix(report: LinkReport, rail: int, *, together: bool = False) -> Matrix:
    """Row: sender, column: receiver; None where nothing was measured.

    `together`: the transfers in both directions at once.
    """
    count = len(report.hosts)
    rows: list[list[PairFlow | None]] = [[None] * count for _ in range(count)]
    for flow in report.flows:
        if flow.rail == rail and flow.together is together:
            rows[flow.sender][flow.receiver] = flow
    return rows


def maps(report: LinkReport, rail: int) -> list[tuple[bool, Matrix, float]]:
    """The maps of a rail with a rate: whether both directions ran, the matrix, the reference."""
    result = []
    for together in (False, True):
        rows = matrix(report, rail, together=together)
        full = reference(rows)
        if full is not None:
            result.append((together, rows, full))
    return result


def reference(rows: Matrix) -> float | None:
    """The reference rate, which a tenth of the transfers exceed. None without any rate."""
    rates = sorted(flow.rate for row in rows for flow in row if flow is not None and flow.rate)
    return nearest_rank(rates, 90) if rates else None


def share(flow: PairFlow, full: float | None) -> float | None:
    """A flow's rate as a share of `full`, at most 1; None if it failed."""
    return min(1.0, flow.rate / full) if flow.rate is not None and full else None


def shade(part: float) -> Color:
    """The color of a share of the reference rate."""
    below = SCALE[0]
    for above in SCALE:
        if part <= above[0]:
            width = above[0] - below[0]
            weight = (part - below[0]) / width if width else 0.0
            red, green, blue = (
                round(x + (y - x) * weight) for x, y in zip(below[1], above[1], strict=True)
            )
            return red, green, blue
        below = above
    return SCALE[-1][1]


@dataclass(frozen=True, slots=True)
class PortLine:
    """One host's port: its rates to and from all others."""

    number: int
    host: str
    port: str
    sent: tuple[float, ...]
    received: tuple[float, ...]
    median_s: float | None
    p99_s: float | None
    resent: int | None


def render(report: LinkReport, width: int | None = None) -> str:
    parts = [_header(report)]
    for rail, name in enumerate(rail.name for rail in report.rails):
        ports = aligned(_columns(report), lines(report, rail), width, DROP_ORDER)
        parts.append(f"\n{name}\n{ports}")
        parts += [
            characters(rows, full, width, together=together)
            for together, rows, full in maps(report, rail)
        ]
    findings = "".join(wrapped(finding_text(finding), width) for finding in report.findings)
    return wrapped("".join(parts), width) + ("\n" + findings if findings else "")


def lines(report: LinkReport, rail: int) -> list[PortLine]:
    """The ports of a rail in order of hosts, those without any measurement left out."""
    port_lines = []
    endpoints = report.rails[rail].endpoints
    for host_at, (host, port) in enumerate(zip(report.hosts, endpoints, strict=True)):
        flows = [
            flow
            for flow in report.flows
            if flow.rail == rail and not flow.together and host_at in (flow.sender, flow.receiver)
        ]
        if port is None or not flows:
            continue
        rated = [(flow, flow.rate) for flow in flows if flow.rate is not None]
        latencies = [
            latency
            for latency in report.latencies
            if latency.rail == rail and host_at in (latency.a, latency.b)
        ]
        medians = [latency.median_s for latency in latencies if latency.median_s is not None]
        p99s = [
            latency.p99_s
            for latency in latencies
            if latency.median_s is not None and latency.p99_s is not None
        ]
        tcp = report.spec.method == TCP
        line = PortLine(
            number=host_at + 1,
            host=host.name,
            port=port.name if tcp else port.device,
            sent=tuple(rate for flow, rate in rated if flow.sender == host_at),
            received=tuple(rate for flow, rate in rated if flow.receiver == host_at),
            median_s=statistics.median(medians) if medians else None,
            p99_s=max(p99s, default=None),
            resent=_resent(flows, host.name) if tcp else None,
        )
        port_lines.append(line)
    return port_lines


def _resent(flows: list[PairFlow], host: str) -> int:
    return sum(flow.moved.get(host, {}).get("tcp", {}).get("RetransSegs", 0) for flow in flows)


def characters(
    rows: Matrix, full: float, width: int | None = None, *, together: bool = False
) -> str:
    """Senders by receivers, a bar for each rate as a share of `full`; '' if it does not fit."""
    if width is not None and LABEL + len(rows) > width:
        return ""
    directions = "both directions at once, " if together else ""
    scale = f"{BARS[-1]} is {bits_text(full)} in steps of an eighth"
    title = f"{directions}from row to column; {scale}, {FAILED} failed"
    numbers = " " * LABEL + "".join(str(at + 1)[-1] for at in range(len(rows)))
    texts = [f"{at + 1:>{LABEL - 1}} {_row(at, rows, full)}" for at in range(len(rows))]
    return "\n" + "".join(f"{line}\n" for line in (title, numbers, *texts))


def _row(at: int, rows: Matrix, full: float) -> str:
    return "".join(
        SELF if to == at else _character(flow, full) for to, flow in enumerate(rows[at])
    ).rstrip()


def _character(flow: PairFlow | None, full: float) -> str:
    if flow is None:
        return ABSENT
    part = share(flow, full)
    return FAILED if part is None else BARS[max(0, round(part * len(BARS)) - 1)]


def method(report: LinkReport) -> str:
    """How it was measured: `TCP, 4 streams, 2 s each`."""
    spec = report.spec
    description = f"perftest, {format_size(spec.size)}, {spec.streams} QPs"
    if spec.method == TCP:
        description = f"TCP, {counted(spec.streams, 'stream')}"
    memory = f", GPU {spec.gpu}" if spec.gpu is not None else ""
    return f"{description}{memory}, {spec.seconds:g} s each"


def latency_title(report: LinkReport) -> str:
    """The title of the latency: perftest prints half of a round trip."""
    return "round trip" if report.spec.method == TCP else "latency"


def _header(report: LinkReport) -> str:
    hosts = counted(len(report.hosts), "host")
    text = f"# {method(report)}: {hosts}, {counted(len(report.flows), 'transfer')}\n"
    if not report.complete:
        text += "# the test did not finish; these are the results so far\n"
    return text


def _columns(report: LinkReport) -> list[Column]:
    columns = [
        Column(title="", value=lambda line: line.number),
        Column(title="host", value=lambda line: line.host, left=True),
        Column(title="port", value=lambda line: line.port, left=True),
        Column(title="sends", value=lambda line: _median_text(line.sent)),
        Column(title="receives", value=lambda line: _median_text(line.received)),
        Column(
            title="least",
            value=lambda line: text_or_unknown(
                min(line.sent + line.received, default=None), bits_text
            ),
        ),
        Column(
            title=latency_title(report),
            value=lambda line: text_or_unknown(line.median_s, time_text),
        ),
        Column(title="99 %", value=lambda line: text_or_unknown(line.p99_s, time_text)),
    ]
    if report.spec.method == TCP:
        columns.append(Column(title="resent", value=lambda line: text_or_unknown(line.resent, str)))
    return columns


def _median_text(rates: Sequence[float]) -> str:
    return text_or_unknown(statistics.median(rates) if rates else None, bits_text)


def render_suspects(report: SuspectReport, width: int | None = None) -> str:
    """The runs of a search for slow hosts, and its result."""
    runs = f"{counted(len(report.runs), 'run')} over {counted(len(report.hosts), 'host')}"
    head = f"# {report.collective}, {format_size(report.size_bytes)}: {runs}\n"
    columns = [
        Column(title="hosts", value=lambda run: listed(run.hosts), left=True),
        Column(title="busbw", value=lambda run: text_or_unknown(run.rate, bits_text)),
        Column(title="", value=lambda run: run.error, left=True),
    ]
    result = "".join(suspect_line(suspect) for suspect in report.suspects)
    result += "".join(f"unknown: {doubt}\n" for doubt in report.doubts)
    result += f"\nhint: {QUIETER_HINT}\n" if report.doubts else ""
    if not result:
        result = "too few runs succeeded to judge\n"
        if report.usual:
            result = f"no slow host found: the usual rate is {bits_text(report.usual)}\n"
    ended = "" if report.complete else "the search did not finish\n"
    return (
        wrapped(head, width)
        + aligned(columns, report.runs)
        + wrapped(f"\n{result if report.complete else ''}{ended}", width)
    )


def suspect_line(suspect: Suspect) -> str:
    slow = "slow only together" if len(suspect.hosts) > 1 else "slow"
    share = "its runs failed"
    if suspect.share is not None:
        share = f"{100 * suspect.share:.0f} % of the usual rate"
    return f"{slow}: {' and '.join(suspect.hosts)}, {share}\n"
