"""Signs of trouble in what the machines said of themselves, and which of them are unusual for this run. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from busbw.core.counters import BY_NAME, Counter, Kind, Owner
from busbw.core.gpu_events import CLOCK_REASONS, REASON_SEVERITY, Severity
from busbw.core.result import Result, Row
from busbw.core.vitals import TCP, HostChange

UNUSUAL = 3.0  # times the median rate over all rows of the run
USED = 0.01  # of the busiest port's traffic: a port with less carried none of the data that was measured
LEAST_BYTES = 1 << 20  # in less traffic than this, a single event would look like many
_MEANING = {reason.name: reason.meaning for reason in CLOCK_REASONS}
_ORDER = (Kind.FAULT, Kind.THROTTLE, Kind.LOSS, Kind.CONGESTION)


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing on one host that moved or held the clocks back during one row.

    `rate` is what rows are compared by: of throttling the share of the row's time, of a port's counters the number a byte of its
    traffic (a slow row has more seconds, not more data), elsewhere the number a second. `name` is that of a counter, or the reasons.
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
    hard: bool = False  # never normal, however often it is there
    unusual: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """What stays the same from row to row; the reasons that hold one GPU back need not."""
        return self.host, self.subject, "" if self.kind is Kind.THROTTLE else self.name

    @property
    def order(self) -> int:
        """The most telling first."""
        return _ORDER.index(self.kind)


class Signs:
    """The signs of every row."""

    def __init__(self, rows: Sequence[Row], found: Sequence[list[Sign]]) -> None:
        rates: dict[tuple[str, str, str], list[float]] = {}
        for signs in found:
            for sign in signs:
                rates.setdefault(sign.key, []).append(sign.rate)
        normal = {key: median(seen + [0.0] * (len(rows) - len(seen))) for key, seen in rates.items()}
        self._of = {
            id(row): sorted((_judged(sign, normal[sign.key]) for sign in signs), key=lambda sign: (sign.order, -sign.rate))
            for row, signs in zip(rows, found, strict=True)
        }

    def of(self, row: Row) -> list[Sign]:
        """All signs of a row, the most telling first."""
        return self._of[id(row)]

    def unusual(self, row: Row) -> list[Sign]:
        """Those that are unusual for the run."""
        return [sign for sign in self.of(row) if sign.unusual]


def _judged(sign: Sign, normal: float) -> Sign:
    return replace(sign, unusual=sign.hard or sign.rate > UNUSUAL * normal)


def read_signs(result: Result) -> Signs:
    """The signs of every row of the result. Ports and TCP give none where no data went over a network."""
    network = uses_network(result)
    return Signs(result.rows, [[sign for change in row.machine or [] for sign in _signs(result, change, network)] for row in result.rows])


def uses_network(result: Result) -> bool:
    """Whether ranks exchanged data over a network: several hosts, or NCCL without its transports within a host."""
    devices = result.world.devices
    barred = all(result.environment.get(name, "").strip() == "1" for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"))
    return len({device.host for device in devices}) > 1 or (len(devices) > 1 and barred)


def _used(change: HostChange, counter: Counter, subject: str) -> bool:
    """Whether a port carried a part of the data; where no port's traffic is known, it may have. TCP is all interfaces together."""
    most = max((_traffic(change, name) for name in change.sent.keys() | change.received.keys()), default=0)
    return counter.owner is Owner.TCP or counter.kind is Kind.FAULT or _traffic(change, subject) >= USED * most


def _signs(result: Result, change: HostChange, network: bool) -> list[Sign]:
    throttled = (_throttled(result, change, bus, severity) for bus in change.throttled for severity in (Severity.BAD, Severity.LOAD))
    counted = (_counted(result, change, subject, name, by, network) for subject, one in change.moved.items() for name, by in one.items())
    return [sign for sign in (*throttled, *counted) if sign is not None]


def _throttled(result: Result, change: HostChange, bus: str, severity: Severity) -> Sign | None:
    """What held a GPU's clocks back; the power limit is normal under load, and a sign only where the clock fell."""
    held = {name: seconds for name, seconds in change.throttled[bus].items() if REASON_SEVERITY.get(name, Severity.BAD) is severity}
    clock, fell = _clock(result, change, bus)
    if not held or (severity is Severity.LOAD and not fell):
        return None
    seconds = max((one for one in held.values() if one is not None), default=None)
    share = 1.0 if seconds is None or change.seconds <= 0 else min(seconds / change.seconds, 1.0)
    name = ", ".join(sorted(held, key=lambda one: one in BY_NAME))
    what = f"held back by {name}{clock}"
    meaning = "; ".join(_MEANING.get(one) or (BY_NAME[one].meaning if one in BY_NAME else "no known reason") for one in held)
    return Sign(change.host, f"{bus} {severity.value}", name, Kind.THROTTLE, share, share, _gpu(result, change.host, bus), what, meaning,
                hard=severity is Severity.BAD)  # fmt: skip


def _clock(result: Result, change: HostChange, bus: str) -> tuple[str, bool]:
    """The SM clock in words, and whether it fell or stands below its largest."""
    buses = list(dict.fromkeys(device.bus for device in result.world.devices if device.host == change.host and device.bus))
    place = buses.index(bus) if bus in buses else len(buses)
    now, before, largest = (
        values[place] if place < len(values) else None for values in (change.sm_mhz, change.sm_before_mhz, change.sm_max_mhz)
    )
    if now is not None and before is not None and now < before:
        return f", {before} -> {now} MHz", True
    if now is not None and largest is not None and now < largest:
        return f", {now} of {largest} MHz", True
    return "", False


def _counted(result: Result, change: HostChange, subject: str, name: str, by: int, network: bool) -> Sign | None:
    counter = BY_NAME.get(name)
    traffic = _traffic(change, subject)
    if counter is None or (counter.owner is not Owner.GPU and not (network and _used(change, counter, subject))):
        return None
    if by < max(counter.notable * counter.scale, counter.notable_per_byte * traffic):
        return None
    seconds = change.seconds or 1.0
    rate = by / max(traffic, LEAST_BYTES) if traffic else by / seconds
    where = _gpu(result, change.host, subject) if counter.owner is Owner.GPU else f"{change.host} {_port(result, change, subject)}"
    short = counter.meaning.partition(":")[0]
    return Sign(change.host, subject, name, counter.kind, by, rate, where, f"{name} +{by:,} ({short})", counter.meaning)


def _traffic(change: HostChange, subject: str) -> int:
    """Bytes that a port sent and received, all ports together for TCP; 0 where it is not known."""
    ports = change.sent.keys() | change.received.keys() if subject == TCP else {subject}
    return sum(change.sent.get(name, 0) + change.received.get(name, 0) for name in ports)


def _gpu(result: Result, host: str, bus: str) -> str:
    index = next((device.index for device in result.world.devices if (device.host, device.bus) == (host, bus)), None)
    return f"{host} GPU {bus if index is None else index}"


def _port(result: Result, change: HostChange, subject: str) -> str:
    """The port, or for what belongs to all of TCP the interfaces that sent most."""
    if subject != TCP:
        return subject
    rdma = {nic.name for host in result.topology.hosts if host.hostname == change.host for nic in host.nics if nic.kind != "ethernet"}
    sent = {name: by for name, by in change.sent.items() if name not in rdma}
    most = max(sent.values(), default=0)
    return "+".join(name for name, by in sent.items() if 2 * by >= most) or "TCP"
