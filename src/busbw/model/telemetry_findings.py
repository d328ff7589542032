"""Signs of trouble in the changes of hosts' counters and clocks during rows, and which signs are
unusual for the run.

Rows that are slow compared with their neighbors (a sweep should be smooth), or have a wide
confidence interval.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

from busbw.core.cells import Figure
from busbw.core.counters import BY_NAME, Kind, Owner
from busbw.core.result import Result, Row
from busbw.core.telemetry import CLOCK_REASONS, REASON_SEVERITY, TCP, HostChange, Severity
from busbw.model.series import Series, series, where_text
from busbw.model.usable_hardware import UsedPorts

# times the time that the neighbors suggest: small sizes vary by 4 to 6 % from sample to sample
SLOWER = 1.10
WIDE = 0.05  # half of the confidence interval, as a share of the time


@dataclass(frozen=True, slots=True)
class Slow:
    """A bad figure, its time divided by the expected time, and a message."""

    figure: Figure
    ratio: float
    message: str


def slow_rows(result: Result, unusual: Callable[[Row], bool]) -> list[Slow]:
    """The bad figures among unusual rows, the worst first.

    Only rows that are not unusual count as neighbors.
    """
    found = []
    for figures in series(result):
        for index, figure in enumerate(figures):
            if unusual(figure.row) and figure.busbw > 0:
                found += _judged(figures, index, unusual)
    return sorted(found, key=lambda slow: -slow.ratio)


def _judged(figures: Series, index: int, unusual: Callable[[Row], bool]) -> list[Slow]:
    figure = figures[index]
    expected = expected_s(figures, index, unusual)
    ratio = figure.cell.time_s / expected if expected else 0.0
    where = where_text(figure)
    if ratio >= SLOWER:
        longer = (
            f"{ratio:.2g} times as long as"
            if ratio >= 2
            else f"{(ratio - 1) * 100:.0f} % longer than"
        )
        return [Slow(figure, ratio, f"{where} took {longer} its neighbors suggest")]
    half = figure.half_width if figure.half_width < math.inf else 0.0
    if figure.cell.stopped == "unstable":
        return [Slow(figure, 1 + half, f"{where} did not settle")]
    return (
        [Slow(figure, 1 + half, f"{where} has a confidence interval of +-{half * 100:.0f} %")]
        if half > WIDE
        else []
    )


def expected_s(figures: Series, index: int, unusual: Callable[[Row], bool]) -> float | None:
    """Seconds that the nearest usual rows suggest for a figure; None without any.

    Between two rows: interpolated over logarithms. After the last: at its busbw. Before the first:
    its time.
    """
    here = figures[index].row.size_bytes
    usual = [
        one if one.busbw > 0 and one.cell.time_s > 0 and not unusual(one.row) else None
        for one in figures
    ]
    before = next(filter(None, reversed(usual[:index])), None)
    after = next(filter(None, usual[index + 1 :]), None)
    if before is None or after is None:
        return (
            before.cell.time_s * here / before.row.size_bytes
            if before
            else after.cell.time_s
            if after
            else None
        )
    low, high = before.row.size_bytes, after.row.size_bytes
    share = math.log(here / low) / math.log(high / low) if high > low else 0.5
    return float(before.cell.time_s ** (1 - share) * after.cell.time_s**share)


UNUSUAL = 3.0  # times the median rate over all rows of the run
LEAST_BYTES = 1 << 20  # below this traffic, one event per byte would look like many
_MEANING = {reason.name: reason.meaning for reason in CLOCK_REASONS}
_ORDER = (Kind.FAULT, Kind.THROTTLE, Kind.LOSS, Kind.CONGESTION)


@dataclass(frozen=True, slots=True)
class Sign:
    """One counter that moved, or reduced clocks of one GPU, during one row.

    Rows are compared by `rate`: for reduced clocks the share of the row's time, for a port's
    counters the increase per byte of its traffic (a slow row has more seconds, not more data), for
    other counters the increase per second. `name` is the counter, or the reasons for reduced
    clocks.
    """

    host: str
    subject: str
    name: str
    kind: Kind
    amount: float
    rate: float
    where: str
    what: str
    meaning: str
    hard: bool = False  # a sign of trouble even in every row
    unusual: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """Identifies the same sign in other rows; the reasons for a GPU's reduced clocks may
        vary.
        """
        return self.host, self.subject, "" if self.kind is Kind.THROTTLE else self.name

    @property
    def order(self) -> int:
        """The most serious kind first."""
        return _ORDER.index(self.kind)


class Signs:
    """The signs of every row of a result: of its GPUs, and of the ports that carried its data."""

    def __init__(self, result: Result) -> None:
        ports, rows = UsedPorts(result), result.rows
        found = {
            id(row): [
                sign for change in row.machine or [] for sign in _signs(result, change, ports)
            ]
            for row in rows
        }
        rates: dict[tuple[str, str, str], list[float]] = {}
        for sign in (sign for signs in found.values() for sign in signs):
            rates.setdefault(sign.key, []).append(sign.rate)
        normal = {
            key: median(seen + [0.0] * (len(rows) - len(seen))) for key, seen in rates.items()
        }
        self._of: dict[int, list[Sign]] = {}
        for row, signs in found.items():
            judged = [
                replace(sign, unusual=sign.hard or sign.rate > UNUSUAL * normal[sign.key])
                for sign in signs
            ]
            self._of[row] = sorted(judged, key=lambda sign: (sign.order, -sign.rate))
        self._unread = {
            id(row): sorted({one for change in row.machine or [] for one in _unread(change, ports)})
            for row in rows
        }

    def of(self, row: Row) -> list[Sign]:
        """All signs of a row, the most serious first."""
        return self._of[id(row)]

    def unusual(self, row: Row) -> list[Sign]:
        """The signs of a row that are unusual for the run."""
        return [sign for sign in self.of(row) if sign.unusual]

    def unread(self, row: Row) -> list[str]:
        """Why signs of a row may be missing: what could not be read."""
        return self._unread[id(row)]


def _unread(change: HostChange, ports: UsedPorts) -> list[str]:
    """What could not be read, without ports that carried no data; a reason begins with its
    subject.
    """
    return [
        reason
        for reason in change.unread
        if not ports.unused(change.host, reason.partition(" ")[0].rstrip(":"))
    ]


def _signs(result: Result, change: HostChange, ports: UsedPorts) -> list[Sign]:
    throttled = (
        _throttled(result, change, bus, severity)
        for bus in change.throttled
        for severity in (Severity.BAD, Severity.LOAD)
    )
    counted = (
        _counted(result, change, subject, name, by, ports)
        for subject, one in change.moved.items()
        for name, by in one.items()
    )
    return [sign for sign in (*throttled, *counted) if sign is not None]


def _throttled(result: Result, change: HostChange, bus: str, severity: Severity) -> Sign | None:
    """Reasons for a GPU's reduced clocks.

    The power limit is normal under load, and a sign only if the clock fell.
    """
    held = {
        name: seconds
        for name, seconds in change.throttled[bus].items()
        if REASON_SEVERITY.get(name, Severity.BAD) is severity
    }
    clock, fell = _clock(result, change, bus)
    if not held or (severity is Severity.LOAD and not fell):
        return None
    seconds = max((one for one in held.values() if one is not None), default=None)
    share = 1.0 if seconds is None or change.seconds <= 0 else min(seconds / change.seconds, 1.0)
    name = ", ".join(sorted(held, key=lambda one: one in BY_NAME))
    what = f"clocks reduced by {name}{clock}"
    meaning = "; ".join(
        _MEANING.get(one) or (BY_NAME[one].meaning if one in BY_NAME else "unknown reason")
        for one in held
    )
    return Sign(
        change.host,
        f"{bus} {severity.value}",
        name,
        Kind.THROTTLE,
        share,
        share,
        _gpu(result, change.host, bus),
        what,
        meaning,
        hard=severity is Severity.BAD,
    )


def _clock(result: Result, change: HostChange, bus: str) -> tuple[str, bool]:
    """Text on the SM clock, and whether it fell or is below its maximum."""
    buses = list(
        dict.fromkeys(
            device.bus
            for device in result.world.devices
            if device.host == change.host and device.bus
        )
    )
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


def _counted(
    result: Result, change: HostChange, subject: str, name: str, by: int, ports: UsedPorts
) -> Sign | None:
    counter = BY_NAME.get(name)
    traffic = _traffic(change, subject)
    if counter is None or (counter.owner is not Owner.GPU and not ports.used(change.host, subject)):
        return None
    if by < max(counter.notable * counter.scale, counter.notable_per_byte * traffic):
        return None
    seconds = change.seconds or 1.0
    rate = by / max(traffic, LEAST_BYTES) if traffic else by / seconds
    where = (
        _gpu(result, change.host, subject)
        if counter.owner is Owner.GPU
        else f"{change.host} {_port(result, change, subject)}"
    )
    short = counter.meaning.partition(":")[0]
    return Sign(
        change.host,
        subject,
        name,
        counter.kind,
        by,
        rate,
        where,
        f"{name} +{by:,} ({short})",
        counter.meaning,
    )


def _traffic(change: HostChange, subject: str) -> int:
    """Bytes that a port sent and received, for TCP those of all ports; 0 if unknown."""
    ports = change.sent.keys() | change.received.keys() if subject == TCP else {subject}
    return sum(change.sent.get(name, 0) + change.received.get(name, 0) for name in ports)


def _gpu(result: Result, host: str, bus: str) -> str:
    index = next(
        (
            device.index
            for device in result.world.devices
            if (device.host, device.bus) == (host, bus)
        ),
        None,
    )
    return f"{host} GPU {bus if index is None else index}"


def _port(result: Result, change: HostChange, subject: str) -> str:
    """The port; for TCP the interfaces that sent the most."""
    if subject != TCP:
        return subject
    rdma = {
        nic.name
        for host in result.topology.hosts
        if host.hostname == change.host
        for nic in host.nics
        if nic.kind != "ethernet"
    }
    sent = {name: by for name, by in change.sent.items() if name not in rdma}
    most = max(sent.values(), default=0)
    return "+".join(name for name, by in sent.items() if 2 * by >= most) or "TCP"
