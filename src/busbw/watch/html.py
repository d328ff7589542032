"""A watch as parts of a page: the counters over time, the errors, and the last values."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from xml.etree.ElementTree import Element

from busbw.core.link_samples import (
    ETHERNET,
    IB,
    NVLINK,
    PCIE,
    RDMA,
    ROCE,
    WatchInterval,
    per_second,
)
from busbw.core.sizes import counted
from busbw.ui.columns import Column
from busbw.ui.html.axes import Scale, time_ticks
from busbw.ui.html.element import section, tag
from busbw.ui.html.plot import Plot, PlotCurve, PlotMark, Point, figure, swatch
from busbw.ui.html.table import column_table, text_table
from busbw.watch.over_time import (
    GIB,
    PERCENT,
    QUANTITIES,
    Error,
    Event,
    HostWatch,
    Indication,
    Value,
    by_host,
    events,
)
from busbw.watch.text import DROP_ORDER, columns, is_shown

COLORS = 8  # of style.css
MEANING = "what it counts"
MAX_MARKS = 90  # of a plot
EVENTS = "events"  # the unit that goes without saying
MAX_NOTES = 6  # events of a mark
FINDING_TITLES = (
    "link",
    "verdict",
    "what it means",
    "first seen",
    "intervals",
    "time (UTC)",
    "pattern",
)
KINDS = {
    IB: "InfiniBand",
    ROCE: "RoCE",
    RDMA: "RDMA",
    ETHERNET: "Ethernet",
    NVLINK: "NVLink",
    PCIE: "PCIe",
}


@dataclass(frozen=True, slots=True)
class _PlotLine:
    """The values of one link or host, without those that are unknown."""

    name: str
    color: int
    runs: list[list[Value]]

    @property
    def most(self) -> float:
        """The largest value, -1 if none is known."""
        return max((value for run in self.runs for _, value in run), default=-1.0)

    def curves(self) -> Iterator[PlotCurve]:
        """A curve for each run; a dot for a single value."""
        for run in self.runs:
            points = [Point(at_s, value, "") for at_s, value in run]
            yield PlotCurve(self.color, "time" if len(run) > 1 else "out", points)


def parts(intervals: Sequence[WatchInterval], prefix: str) -> list[Element]:
    """The sections of each host. The ids of plots begin with `prefix`."""
    hosts = by_host(intervals)
    if len(hosts) == 1:
        return list(_host_parts(hosts[0], prefix, "h3"))
    return [
        section(host.host, *_host_parts(host, f"{prefix}-{number}", "h4"), level="h3")
        for number, host in enumerate(hosts)
    ]


def _host_parts(host: HostWatch, prefix: str, level: str) -> Iterator[Element]:
    yield tag("p", _span(host), class_="note")
    indications, rises = host.indications, host.errors
    if indications:
        yield section("Findings", _findings_table(host, indications), level=level)
    if rises:
        title, order = "Counters of errors that rose", (MEANING, "kind", "most")
        table = column_table(_error_columns(host), rises, title, order)
        yield section(title, table, level=level)
    elif not indications:
        yield tag("p", "No counter of errors rose.")
    if len(host.intervals) > 1:
        figures = list(_figures(host, prefix))
        yield section(
            "Over time", tag("div", *figures, class_="plots"), _idle_note(host), level=level
        )
    last = host.intervals[-1]
    shown = [column for column in columns() if is_shown(column, last.links)]
    if last.links:
        yield section(
            "Last interval",
            column_table(shown, last.links, "Last interval", DROP_ORDER),
            level=level,
        )


def _span(host: HostWatch) -> str:
    """`4 intervals on h1 from 2026-11-27 10:31:02 to 10:31:05 UTC, none missed`."""
    start = datetime.fromtimestamp(host.times[0], UTC)
    end = datetime.fromtimestamp(host.times[-1], UTC)
    until = f"{end:%H:%M:%S}" if start.date() == end.date() else f"{end:%Y-%m-%d %H:%M:%S}"
    missed = sum(watched.missed for watched in host.intervals)
    return (
        f"{counted(len(host.intervals), 'interval')} on {host.host},"
        f" from {start:%Y-%m-%d %H:%M:%S} to {until} UTC, {missed or 'none'} missed"
    )


def _clock(host: HostWatch, at_s: float) -> str:
    """The time of day, with the day if the watch has several."""
    moment = datetime.fromtimestamp(at_s, UTC)
    several_days = host.times[-1] - host.times[0] > 86400
    return f"{moment:%m-%d %H:%M:%S}" if several_days else f"{moment:%H:%M:%S}"


def _when(host: HostWatch, first_s: float, last_s: float) -> str:
    first, last = _clock(host, first_s), _clock(host, last_s)
    return first if first == last else f"{first} to {last}"


def _findings_table(host: HostWatch, indications: Sequence[Indication]) -> Element:
    lines = [
        (
            indication.finding.link,
            indication.finding.verdict.value,
            indication.finding.message,
            indication.finding.seen,
            str(indication.intervals),
            _when(host, indication.first_s, indication.last_s),
            indication.finding.pattern,
        )
        for indication in indications
    ]
    return text_table(FINDING_TITLES, lines, "Findings")


def _error_columns(host: HostWatch) -> list[Column]:
    return [
        Column(title="link", value=lambda error: error.subject, left=True),
        Column(title="counter", value=lambda error: error.counter.name, left=True),
        Column(title="kind", value=lambda error: error.counter.kind.value, left=True),
        Column(title="rose by", value=_increase),
        Column(title="most", unit="/s", value=lambda error: per_second(error.most)),
        Column(
            title="time",
            unit="UTC",
            value=lambda error: _when(host, error.first_s, error.last_s),
            left=True,
        ),
        Column(title=MEANING, value=lambda error: error.counter.meaning, left=True),
    ]


def _increase(error: Error) -> str:
    """`180`, `35,080,925 us`."""
    unit = error.counter.unit
    return f"{error.increase:,.0f}" + ("" if unit == EVENTS else f" {unit}")


def _figures(host: HostWatch, prefix: str) -> Iterator[Element]:
    """For each kind of links a plot of each quantity, with the errors; then the host's own."""
    groups = list(_groups(host))
    for number, (title, links) in enumerate(groups):
        marked = events(host, links)
        for at, quantity in enumerate(QUANTITIES):
            lines = [
                _PlotLine(link, color, host.runs(link, quantity))
                for color, link in enumerate(links)
            ]
            shown = [line for line in lines if line.most > 0 or (quantity.traffic and line.runs)]
            if shown:
                name, heading = f"{prefix}-{number}-{at}", f"{title}: {quantity.title}"
                yield _figure(host, name, (heading, quantity.unit), shown, marked)
    resent = host.drawn(watched.tcp.get("RetransSegs") for watched in host.intervals)
    busy = host.drawn((watched.cpu for watched in host.intervals), PERCENT)
    free = host.drawn((watched.free_memory_bytes for watched in host.intervals), GIB)
    for name, title, unit, runs in (
        ("tcp", "TCP retransmits", "segments per second", resent),
        ("cpu", "CPUs busy", "% of their time", busy),
        ("memory", "Free memory", "GiB", free),
    ):
        line = _PlotLine(host.host, 0, runs)
        if line.most > 0:
            yield _figure(host, f"{prefix}-{name}", (title, unit), [line], [])


def _groups(host: HostWatch) -> Iterator[tuple[str, list[str]]]:
    """The links that carried something or failed, by kind, few enough for a plot each."""
    idle = set(host.idle)
    by_kind: dict[str, list[str]] = {}
    for link, flows in host.flows.items():
        if link not in idle:
            kind = next(flow.kind for flow in flows if flow)
            by_kind.setdefault(kind, []).append(link)
    for kind, links in by_kind.items():
        title = KINDS.get(kind, kind)
        for first in range(0, len(links), COLORS):
            group = links[first : first + COLORS]
            part = f" {group[0]} to {group[-1]}" if len(links) > COLORS else ""
            yield f"{title}{part}", group


def _idle_note(host: HostWatch) -> Element | None:
    if not host.idle:
        return None
    return tag("p", f"Not drawn, as they carried nothing: {', '.join(host.idle)}.", class_="note")


def _figure(
    host: HostWatch,
    name: str,
    titles: tuple[str, str],
    lines: Sequence[_PlotLine],
    marked: Sequence[Event],
) -> Element:
    """A plot with its legend; `titles` are its title and its unit."""
    title, unit = titles
    curves = [curve for line in lines for curve in line.curves()]
    items = [(swatch(line.color, "time"), line.name) for line in lines]
    marks = _marks(marked)
    if marks:
        items.append((swatch(None, "mark"), "error or finding"))
    plot = Plot(
        name=name,
        title=title,
        description=_description(lines, unit, marks),
        unit=unit,
        curves=curves,
        guides=[],
        y_text=_tick,
        linear=True,
        zero=True,
        x=Scale("time, UTC", time_ticks, (host.times[0], host.times[-1])),
        marks=marks,
    )
    legend = tag("ul", *(tag("li", sample, label) for sample, label in items), class_="legend")
    return figure(plot, legend, "h4")


def _tick(value: float) -> str:
    """`0.00006`, `12.5`, `2e+06`: short enough for the margin."""
    if value >= 1e5 or 0 < value < 1e-5:
        return f"{value:.3g}"
    return f"{value:.5f}".rstrip("0").rstrip(".")


def _marks(marked: Sequence[Event]) -> list[PlotMark]:
    """The events, those at about the same time as one mark."""
    if not marked:
        return []
    first_s, last_s = marked[0][0], marked[-1][0]
    width_s = (last_s - first_s) / MAX_MARKS or 1.0
    buckets: dict[int, list[Event]] = {}
    for at_s, text in marked:
        buckets.setdefault(int((at_s - first_s) / width_s), []).append((at_s, text))
    return [PlotMark(bucket[0][0], _note(bucket)) for bucket in buckets.values()]


def _note(marked: Sequence[Event]) -> str:
    at = datetime.fromtimestamp(marked[0][0], UTC)
    texts = [text for _, text in marked[:MAX_NOTES]]
    if len(marked) > MAX_NOTES:
        texts.append(f"and {len(marked) - MAX_NOTES} more")
    return "\n".join([f"{at:%H:%M:%S}", *texts])


def _description(lines: Sequence[_PlotLine], unit: str, marks: Sequence[PlotMark]) -> str:
    most = [f"{line.name} at most {line.most:.4g}" for line in lines]
    text = f"{unit} over time: {', '.join(most)}."
    return f"{text} {counted(len(marks), 'mark')} of errors or findings." if marks else text
