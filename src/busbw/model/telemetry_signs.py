"""Signs of trouble during rows, and rows that are slow.

`TelemetrySigns` are the changes of hosts' counters and clocks during each row, and which of them
are unusual for the run.

`slow_rows` finds rows that are slow compared with their neighbors (a sweep should be smooth), or
have a wide confidence interval.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

from busbw.core.cells import Figure
from busbw.core.counters import (
    NOTABLE_CREDIT_SHARE,
    CounterKind,
    Owner,
    counters_by_name,
    credit_share,
)
from busbw.core.link_samples import IB
from busbw.core.result import Result, ResultRow
from busbw.core.telemetry import TCP, HostChange, Severity, all_clock_reasons, reason_severity
from busbw.model.series import Series, series, where_text
from busbw.model.used_ports import UsedPorts
from busbw.ui.number_formats import NOT_KNOWN

# A factor on the time that the neighbors suggest: small sizes vary by 4 to 6 % between samples.
SLOWER = 1.10
WIDE = 0.05  # half of the confidence interval, as a share of the time
UNUSUAL_FACTOR = 3.0  # times the median rate over all rows of the run
MIN_TRAFFIC_BYTES = 1 << 20  # below this traffic, one event per byte would look like many
_ORDER = (CounterKind.FAULT, CounterKind.THROTTLE, CounterKind.LOSS, CounterKind.CONGESTION)


@dataclass(frozen=True, slots=True)
class SlowFigure:
    """A bad figure, its time divided by the expected time, and a message."""

    figure: Figure
    ratio: float
    message: str


def slow_rows(result: Result, unusual: Callable[[ResultRow], bool]) -> list[SlowFigure]:
    """The bad figures among unusual rows, the worst first.

    Only rows that are not unusual count as neighbors.
    """
    slow_figures = []
    for figures in series(result):
        for index, figure in enumerate(figures):
            if unusual(figure.row) and figure.busbw > 0:
                slow = _judge(figures, index, unusual)
                if slow:
                    slow_figures.append(slow)
    return sorted(slow_figures, key=lambda slow: -slow.ratio)


def _judge(figures: Series, index: int, unusual: Callable[[ResultRow], bool]) -> SlowFigure | None:
    figure = figures[index]
    expected = expected_s(figures, index, unusual)
    ratio = figure.cell.time_s / expected if expected else 0.0
    where = where_text(figure)
    if ratio >= SLOWER:
        longer = f"{(ratio - 1) * 100:.0f} % longer than"
        if ratio >= 2:
            longer = f"{ratio:.2g} times as long as"
        return SlowFigure(figure, ratio, f"{where} took {longer} its neighbors suggest")
    half = figure.half_width if figure.half_width < math.inf else 0.0
    if figure.cell.stopped == "unstable":
        return SlowFigure(figure, 1 + half, f"{where} did not settle")
    if half <= WIDE:
        return None
    width = f"has a confidence interval of +-{half * 100:.0f} %"
    return SlowFigure(
        figure, 1 + half, f"{where} {f'is {NOT_KNOWN}' if figure.is_vague else width}"
    )


def expected_s(figures: Series, index: int, unusual: Callable[[ResultRow], bool]) -> float | None:
    """Seconds that the nearest usual rows suggest for a figure; None without any.

    Between two rows: interpolated over logarithms. After the last: at its busbw. Before the first:
    its time.
    """
    size = figures[index].row.size_bytes
    usual = [
        figure if figure.busbw > 0 and figure.cell.time_s > 0 and not unusual(figure.row) else None
        for figure in figures
    ]
    before = next(filter(None, reversed(usual[:index])), None)
    after = next(filter(None, usual[index + 1 :]), None)
    if before is None:
        return after.cell.time_s if after else None
    if after is None:
        return before.cell.time_s * size / before.row.size_bytes
    low, high = before.row.size_bytes, after.row.size_bytes
    share = math.log(size / low) / math.log(high / low) if high > low else 0.5
    return float(before.cell.time_s ** (1 - share) * after.cell.time_s**share)


@dataclass(frozen=True, slots=True)
class TelemetrySign:
    """One counter that moved, or reduced clocks of one GPU, during one row."""

    host: str
    subject: str
    name: str  # the counter, or the reasons for reduced clocks
    kind: CounterKind
    amount: float
    # by which rows are compared: for reduced clocks the share of the row's time, for a port's
    # counters the increase per byte of traffic (a slow row has more seconds, not more data), for
    # others the increase per second
    rate: float
    where: str
    what: str
    meaning: str
    hard: bool = False  # a sign of trouble even in every row
    unusual: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """Identifies a sign in other rows; the reasons for a GPU's reduced clocks may vary."""
        return self.host, self.subject, "" if self.kind is CounterKind.THROTTLE else self.name

    @property
    def order(self) -> int:
        """The most serious kind first."""
        return _ORDER.index(self.kind)


class TelemetrySigns:
    """The signs of every row of a result: of its GPUs, and of the ports that carried its data."""

    def __init__(self, result: Result) -> None:
        ports, rows = UsedPorts(result), result.rows
        signs_of: dict[int, list[TelemetrySign]] = {}
        self._unread: dict[int, list[str]] = {}
        rates: dict[tuple[str, str, str], list[float]] = {}
        for row in rows:
            signs = signs_of[id(row)] = []
            unread: set[str] = set()
            for change in row.machine or []:
                signs += _signs(result, change, ports)
                unread.update(_unread(change, ports))
            self._unread[id(row)] = sorted(unread)
            for sign in signs:
                rates.setdefault(sign.key, []).append(sign.rate)
        # rows without a sign have the rate 0
        normal = {
            key: median(values + [0.0] * (len(rows) - len(values))) for key, values in rates.items()
        }
        self._of: dict[int, list[TelemetrySign]] = {}
        for row_id, signs in signs_of.items():
            judged = [
                replace(sign, unusual=sign.hard or sign.rate > UNUSUAL_FACTOR * normal[sign.key])
                for sign in signs
            ]
            self._of[row_id] = sorted(judged, key=lambda sign: (sign.order, -sign.rate))

    def of(self, row: ResultRow) -> list[TelemetrySign]:
        return self._of[id(row)]

    def unusual(self, row: ResultRow) -> list[TelemetrySign]:
        return [sign for sign in self.of(row) if sign.unusual]

    def unread(self, row: ResultRow) -> list[str]:
        """Why signs of a row may be missing: what could not be read."""
        return self._unread[id(row)]


def _unread(change: HostChange, ports: UsedPorts) -> list[str]:
    """What could not be read, without idle ports; a reason begins with its subject."""
    return [
        reason
        for reason in change.unread
        if not ports.unused(change.host, reason.partition(" ")[0].rstrip(":"))
    ]


def _signs(result: Result, change: HostChange, ports: UsedPorts) -> list[TelemetrySign]:
    """The signs of one host during one row: of reduced clocks, then of counters."""
    signs: list[TelemetrySign | None] = []
    for bus in change.throttled:
        signs.append(_throttled(result, change, bus, Severity.BAD))
        signs.append(_throttled(result, change, bus, Severity.LOAD))
    for subject, counters in change.moved.items():
        signs += [
            _counter_sign(result, change, subject, name, increase, ports)
            for name, increase in counters.items()
        ]
    return [sign for sign in signs if sign is not None]


def _throttled(
    result: Result, change: HostChange, bus: str, severity: Severity
) -> TelemetrySign | None:
    """Reasons for a GPU's reduced clocks.

    The power limit is normal under load, and a sign only if the clock fell.
    """
    seconds_of = {
        name: seconds
        for name, seconds in change.throttled[bus].items()
        if reason_severity().get(name, Severity.BAD) is severity
    }
    clock, fell = _clock(result, change, bus)
    if not seconds_of or (severity is Severity.LOAD and not fell):
        return None
    known = [seconds for seconds in seconds_of.values() if seconds is not None]
    share = 1.0
    if known and change.seconds > 0:
        share = min(max(known) / change.seconds, 1.0)
    names = ", ".join(sorted(seconds_of, key=lambda name: name in counters_by_name()))
    return TelemetrySign(
        change.host,
        f"{bus} {severity.value}",
        names,
        CounterKind.THROTTLE,
        share,
        share,
        _gpu(result, change.host, bus),
        f"clocks reduced by {names}{clock}",
        "; ".join(_reason_meaning(name) for name in seconds_of),
        hard=severity is Severity.BAD,
    )


def _reason_meaning(name: str) -> str:
    for reason in all_clock_reasons():
        if reason.name == name:
            return reason.meaning
    return counters_by_name()[name].meaning if name in counters_by_name() else "unknown reason"


def _clock(result: Result, change: HostChange, bus: str) -> tuple[str, bool]:
    """Text on the SM clock, and whether it fell or is below its maximum."""
    devices = [device for device in result.world.devices if device.host == change.host]
    buses = list(dict.fromkeys(device.bus for device in devices if device.bus))
    index = buses.index(bus) if bus in buses else len(buses)
    now, before, largest = (
        values[index] if index < len(values) else None
        for values in (change.sm_mhz, change.sm_before_mhz, change.sm_max_mhz)
    )
    if now is not None and before is not None and now < before:
        return f", {before} -> {now} MHz", True
    if now is not None and largest is not None and now < largest:
        return f", {now} of {largest} MHz", True
    return "", False


def _counter_sign(
    result: Result, change: HostChange, subject: str, name: str, increase: int, ports: UsedPorts
) -> TelemetrySign | None:
    """The sign of a counter that rose notably, of a GPU or of a port that carried data."""
    counter = counters_by_name().get(name)
    if counter is None:
        return None
    of_gpu = counter.owner is Owner.GPU
    if not of_gpu and not ports.used(change.host, subject):
        return None
    traffic = _traffic(change, subject)
    waited = ""
    if counter.ticks:
        share = _credit_share(result, change, subject, increase)
        if share < NOTABLE_CREDIT_SHARE:
            return None
        waited = f", at least {100 * share:.0f} % of the time"
    elif increase < max(counter.notable * counter.scale, counter.notable_per_byte * traffic):
        return None
    rate = increase / (change.seconds or 1.0)
    if traffic:
        rate = increase / max(traffic, MIN_TRAFFIC_BYTES)
    if of_gpu:
        where = _gpu(result, change.host, subject)
    else:
        where = f"{change.host} {_port(result, change, subject)}"
    short = counter.meaning.partition(":")[0]
    return TelemetrySign(
        change.host,
        subject,
        name,
        counter.kind,
        increase,
        rate,
        where,
        f"{name} +{increase:,} ({short}{waited})",
        counter.meaning,
    )


def _credit_share(result: Result, change: HostChange, port: str, ticks: int) -> float:
    """The least share of a row's time for which an InfiniBand port waited; 0 if unknown."""
    nics = [
        nic for host in result.topology.hosts if host.hostname == change.host for nic in host.nics
    ]
    rates = [nic.rate for nic in nics if (nic.name, nic.kind) == (port, IB) and nic.rate]
    return credit_share(ticks / change.seconds, rates[0]) if rates and change.seconds else 0.0


def _traffic(change: HostChange, subject: str) -> int:
    """Bytes that a port sent and received, for TCP those of all ports; 0 if unknown."""
    ports = change.sent.keys() | change.received.keys() if subject == TCP else {subject}
    return sum(change.sent.get(name, 0) + change.received.get(name, 0) for name in ports)


def _gpu(result: Result, host: str, bus: str) -> str:
    """`h1 GPU 3`, or with the bus address where the GPU is not of the run."""
    for device in result.world.devices:
        if (device.host, device.bus) == (host, bus):
            return f"{host} GPU {device.index}"
    return f"{host} GPU {bus}"


def _port(result: Result, change: HostChange, subject: str) -> str:
    """The port; for TCP the interfaces that sent the most."""
    if subject != TCP:
        return subject
    hosts = [host for host in result.topology.hosts if host.hostname == change.host]
    rdma = {nic.name for host in hosts for nic in host.nics if nic.kind != "ethernet"}
    sent = {name: size for name, size in change.sent.items() if name not in rdma}
    largest = max(sent.values(), default=0)
    return "+".join(name for name, size in sent.items() if 2 * size >= largest) or "TCP"
