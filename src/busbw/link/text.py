"""A link test as text: a line for each port, a matrix of characters, and the findings.

The rates of one rail as a matrix, senders by receivers, and the color of a share of the
reference rate.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from busbw.core.sizes import counted, format_size
from busbw.link.types import TCP, Flow, LinkReport, SuspectReport, bits_text
from busbw.stats.intervals import nearest_rank
from busbw.ui.number_formats import BARS, Column, aligned, finding_text, known, time_text, wrapped

Matrix = Sequence[Sequence[Flow | None]]
Color = tuple[int, int, int]
# From slow (dark, red) to fast, legible by lightness alone. Shares of the reference rate.
SCALE: tuple[tuple[float, Color], ...] = (
    (0.25, (98, 10, 30)),
    (0.6, (205, 62, 40)),
    (0.85, (247, 183, 100)),
    (1.0, (226, 242, 233)),
)


def matrix(report: LinkReport, rail: int, *, together: bool = False) -> Matrix:
    """Row: sender, column: receiver; None where nothing was measured.

    `together`: the transfers in both directions at once.
    """
    count = len(report.hosts)
    rows: list[list[Flow | None]] = [[None] * count for _ in range(count)]
    for flow in report.flows:
        if flow.rail == rail and flow.together is together:
            rows[flow.sender][flow.receiver] = flow
    return rows


def maps(report: LinkReport, rail: int) -> list[tuple[bool, Matrix, float]]:
    """The maps of a rail that have a rate: whether both directions ran at once, the matrix, and
    the reference rate.
    """
    found = []
    for together in (False, True):
        rows = matrix(report, rail, together=together)
        full = reference(rows)
        if full is not None:
            found.append((together, rows, full))
    return found


def reference(rows: Matrix) -> float | None:
    """The reference rate, which a tenth of the transfers exceed. None without any rate."""
    rates = sorted(flow.rate for row in rows for flow in row if flow is not None and flow.rate)
    return nearest_rank(rates, 90) if rates else None


def share(flow: Flow, full: float | None) -> float | None:
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


DROP_ORDER = ("port", "99 %", "resent", "least", "latency")
FAILED, SELF, ABSENT = "x", ".", " "
QUIETER = "run it while nothing else uses the hosts, or with a larger --size"
LABEL = 5  # characters before a row of the matrix


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
    """The whole text."""
    parts = [_header(report)]
    for rail, one in enumerate(report.rails):
        parts.append(
            f"\n{one.name}\n" + aligned(_columns(report), lines(report, rail), width, DROP_ORDER)
        )
        parts += [
            characters(rows, full, width, together=together)
            for together, rows, full in maps(report, rail)
        ]
    found = "".join(wrapped(finding_text(finding), width) for finding in report.findings)
    return wrapped("".join(parts), width) + ("\n" + found if found else "")


def lines(report: LinkReport, rail: int) -> list[PortLine]:
    """The ports of a rail in order of hosts, those without any measurement left out."""
    found = []
    for at, (host, port) in enumerate(zip(report.hosts, report.rails[rail].endpoints, strict=True)):
        own = [
            flow
            for flow in report.flows
            if flow.rail == rail and not flow.together and at in (flow.sender, flow.receiver)
        ]
        times = [
            one
            for one in report.latencies
            if one.rail == rail and at in (one.a, one.b) and one.median_s is not None
        ]
        if port is None or not own:
            continue
        found.append(
            PortLine(
                number=at + 1,
                host=host.name,
                port=port.name if report.spec.method == TCP else port.device,
                sent=tuple(
                    flow.rate for flow in own if flow.sender == at and flow.rate is not None
                ),
                received=tuple(
                    flow.rate for flow in own if flow.receiver == at and flow.rate is not None
                ),
                median_s=(
                    statistics.median(one.median_s for one in times if one.median_s is not None)
                    if times
                    else None
                ),
                p99_s=max((one.p99_s for one in times if one.p99_s is not None), default=None),
                resent=_resent(own, host.name) if report.spec.method == TCP else None,
            )
        )
    return found


def _resent(flows: list[Flow], host: str) -> int:
    return sum(flow.moved.get(host, {}).get("tcp", {}).get("RetransSegs", 0) for flow in flows)


def characters(
    rows: Matrix, full: float, width: int | None = None, *, together: bool = False
) -> str:
    """Senders by receivers, a bar for each rate as a share of `full`; '' if it does not fit."""
    if width is not None and LABEL + len(rows) > width:
        return ""
    how = "both directions at once, " if together else ""
    title = (
        f"\n"
        f"{how}from row to column; {BARS[-1]} is {bits_text(full)} in steps of an eighth,"
        f" {FAILED} failed\n"
    )
    numbers = [" " * LABEL + "".join(str(at + 1)[-1] for at in range(len(rows))) + "\n"]
    return title + "".join(
        numbers + [f"{at + 1:>{LABEL - 1}} {_row(at, rows, full)}\n" for at in range(len(rows))]
    )


def _row(at: int, rows: Matrix, full: float) -> str:
    return "".join(
        SELF if to == at else _character(flow, full) for to, flow in enumerate(rows[at])
    ).rstrip()


def _character(flow: Flow | None, full: float) -> str:
    if flow is None:
        return ABSENT
    part = share(flow, full)
    return FAILED if part is None else BARS[max(0, round(part * len(BARS)) - 1)]


def method(report: LinkReport) -> str:
    """How it was measured: `TCP, 4 streams, 2 s each`."""
    spec = report.spec
    how = (
        f"TCP, {counted(spec.streams, 'stream')}"
        if spec.method == TCP
        else f"perftest, {format_size(spec.size)}, {spec.streams} QPs"
    )
    memory = f", GPU {spec.gpu}" if spec.gpu is not None else ""
    return f"{how}{memory}, {spec.seconds:g} s each"


def latency_title(report: LinkReport) -> str:
    """The title of the latency: perftest prints half of a round trip."""
    return "round trip" if report.spec.method == TCP else "latency"


def _header(report: LinkReport) -> str:
    text = (
        f"# {method(report)}: {counted(len(report.hosts), 'host')},"
        f" {counted(len(report.flows), 'transfer')}\n"
    )
    return text + (
        "" if report.complete else "# the test did not finish; these are the results so far\n"
    )


def _columns(report: LinkReport) -> list[Column]:
    resent = (
        [Column(title="resent", value=lambda one: known(one.resent, str))]
        if report.spec.method == TCP
        else []
    )
    return [
        Column(title="", value=lambda one: one.number),
        Column(title="host", value=lambda one: one.host, left=True),
        Column(title="port", value=lambda one: one.port, left=True),
        Column(
            title="sends",
            value=lambda one: known(statistics.median(one.sent) if one.sent else None, bits_text),
        ),
        Column(
            title="receives",
            value=lambda one: known(
                statistics.median(one.received) if one.received else None, bits_text
            ),
        ),
        Column(
            title="least",
            value=lambda one: known(min(one.sent + one.received, default=None), bits_text),
        ),
        Column(title=latency_title(report), value=lambda one: known(one.median_s, time_text)),
        Column(title="99 %", value=lambda one: known(one.p99_s, time_text)),
        *resent,
    ]


def render_suspects(report: SuspectReport, width: int | None = None) -> str:
    """The runs of a search for slow hosts, and its result."""
    runs = f"{counted(len(report.runs), 'run')} over {counted(len(report.hosts), 'host')}"
    head = f"# {report.collective}, {format_size(report.size_bytes)}: {runs}\n"
    columns = [
        Column(title="hosts", value=lambda run: ",".join(run.hosts), left=True),
        Column(title="busbw", value=lambda run: known(run.rate, bits_text)),
        Column(title="", value=lambda run: run.error, left=True),
    ]
    said = "".join(
        f"slow{' only together' if len(one.hosts) > 1 else ''}: {' and '.join(one.hosts)}, "
        + (
            "its runs failed\n"
            if one.share is None
            else f"{100 * one.share:.0f} % of the usual rate\n"
        )
        for one in report.suspects
    )
    said += "".join(f"unknown: {doubt}\n" for doubt in report.doubts)
    said += f"\nhint: {QUIETER}\n" if report.doubts else ""
    if not said:
        said = (
            f"no slow host found: the usual rate is {bits_text(report.usual)}\n"
            if report.usual
            else "too few runs succeeded to judge\n"
        )
    ended = "" if report.complete else "the search did not finish\n"
    return (
        wrapped(head, width)
        + aligned(columns, report.runs)
        + wrapped(f"\n{said if report.complete else ''}{ended}", width)
    )
