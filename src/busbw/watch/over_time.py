"""The values of a watch over time: a line for each link and quantity, and the errors on the way."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from busbw.core.counters import Counter, CounterKind
from busbw.core.finding import Verdict
from busbw.core.link_samples import LinkFinding, LinkFlow, WatchInterval, per_second
from busbw.core.watch_counters import watched_by_name

GB, GIB, PERCENT = 1e9, 2.0**30, 0.01
MAX_BUCKETS = 240  # of a line; each keeps its least and its largest value
LARGEST = 1e18  # what can be drawn: bytes per second, events per second
ERRORS = (CounterKind.FAULT, CounterKind.LOSS, CounterKind.CONGESTION)
MARKED = (CounterKind.FAULT, CounterKind.LOSS)
TCP = "TCP"

Value = tuple[float, float]  # Unix seconds, and the value then
Event = tuple[float, str]  # Unix seconds, and what happened


@dataclass(frozen=True, slots=True)
class Quantity:
    """One value of a link: its plot has `title` and `unit`.

    It is drawn if it is known, others only if it is above 0 at any time.
    """

    title: str
    unit: str
    value: Callable[[LinkFlow], float | None]
    scale: float = 1.0
    traffic: bool = False


QUANTITIES = (
    Quantity("sent", "GB/s", lambda flow: flow.tx, GB, traffic=True),
    Quantity("received", "GB/s", lambda flow: flow.rx, GB, traffic=True),
    Quantity("pause in", "% of the time", lambda flow: flow.rx_pause, PERCENT),
    Quantity("pause out", "% of the time", lambda flow: flow.tx_pause, PERCENT),
    Quantity("CNP in", "notifications per second", lambda flow: flow.cnp_handled),
    Quantity("CNP out", "notifications per second", lambda flow: flow.cnp_sent),
    Quantity("ECN", "marked packets per second", lambda flow: flow.ecn_marked),
    Quantity("lost", "signs of loss per second", lambda flow: flow.lost),
    Quantity("drops", "packets per second", lambda flow: flow.dropped),
)


@dataclass(slots=True)
class Error:
    """A counter of a link that rose: the whole increase, and its largest rate."""

    subject: str
    counter: Counter
    first_s: float
    last_s: float
    increase: float = 0.0
    most: float = 0.0  # per second


@dataclass(slots=True)
class Indication:
    """A pattern of counters that was found on a link, in `intervals` of them."""

    finding: LinkFinding
    first_s: float
    last_s: float
    intervals: int = 0


@dataclass
class HostWatch:
    """The intervals of one host in the order of time, and when each ended, in Unix seconds.

    `flows` has those of each link; None where the link was not listed.
    """

    host: str
    intervals: list[WatchInterval]
    times: list[float]
    flows: dict[str, list[LinkFlow | None]]

    def runs(self, link: str, quantity: Quantity) -> list[list[Value]]:
        """The known values of a link over time, at most 2 * MAX_BUCKETS of them."""
        values = (quantity.value(flow) if flow else None for flow in self.flows[link])
        return self.drawn(values, quantity.scale)

    def drawn(self, values: Iterable[float | None], scale: float = 1.0) -> list[list[Value]]:
        """Runs of the known values of all intervals, divided by `scale`."""
        return thinned(zip(self.times, values, strict=True), scale)

    @cached_property
    def errors(self) -> list[Error]:
        """Every counter of loss, faults or congestion that rose, faults first."""
        by_key: dict[tuple[str, str], Error] = {}
        for watched, at_s in zip(self.intervals, self.times, strict=True):
            for subject, counters in _counters(watched):
                for name, per_s in counters.items():
                    counter = watched_by_name().get(name)
                    if counter is None or counter.kind not in ERRORS or not 0 < per_s < LARGEST:
                        continue
                    error = by_key.setdefault((subject, name), Error(subject, counter, at_s, at_s))
                    error.last_s = at_s
                    error.increase += per_s * watched.seconds
                    error.most = max(error.most, per_s)
        return sorted(by_key.values(), key=lambda error: ERRORS.index(error.counter.kind))

    @cached_property
    def indications(self) -> list[Indication]:
        """Each pattern of counters that was found, failures first."""
        by_key: dict[tuple[str, str], Indication] = {}
        for watched, at_s in zip(self.intervals, self.times, strict=True):
            for finding in watched.findings:
                key = (finding.link, finding.pattern)
                indication = by_key.setdefault(key, Indication(finding, at_s, at_s))
                indication.last_s = at_s
                indication.intervals += 1
        return sorted(by_key.values(), key=lambda shown: shown.finding.verdict is not Verdict.FAIL)

    @cached_property
    def idle(self) -> list[str]:
        """The links without a value above 0 and without an error."""
        failed = {error.subject for error in self.errors}
        failed |= {indication.finding.link for indication in self.indications}
        return [
            link
            for link, flows in self.flows.items()
            if link not in failed
            and not any(quantity.value(flow) for flow in flows if flow for quantity in QUANTITIES)
        ]


def by_host(intervals: Iterable[WatchInterval]) -> list[HostWatch]:
    hosts: dict[str, list[WatchInterval]] = {}
    for watched in sorted(intervals, key=unix_s):
        hosts.setdefault(watched.host, []).append(watched)
    return [_host_watch(host, ordered) for host, ordered in hosts.items()]


def _host_watch(host: str, intervals: list[WatchInterval]) -> HostWatch:
    flows: dict[str, list[LinkFlow | None]] = {}
    for at, watched in enumerate(intervals):
        for flow in watched.links:
            known = flows.setdefault(flow.name, [None] * len(intervals))
            known[at] = flow
    return HostWatch(host, intervals, [unix_s(watched) for watched in intervals], flows)


def unix_s(watched: WatchInterval) -> float:
    """When the interval ended; ValueError if it does not say so."""
    return datetime.fromisoformat(watched.at).timestamp()


def thinned(values: Iterable[tuple[float, float | None]], scale: float) -> list[list[Value]]:
    """Runs of known values, divided by `scale`; of many, the extremes of each part of the time."""
    runs: list[list[Value]] = [[]]
    for at_s, value in values:
        if value is not None and 0 <= value < LARGEST:
            runs[-1].append((at_s, value / scale))
        elif runs[-1]:
            runs.append([])
    known = [run for run in runs if run]
    if sum(map(len, known)) <= 2 * MAX_BUCKETS:
        return known
    width_s = (known[-1][-1][0] - known[0][0][0]) / MAX_BUCKETS
    return [list(_ends_of_buckets(run, width_s)) for run in known]


def _ends_of_buckets(run: Sequence[Value], width_s: float) -> Iterator[Value]:
    buckets: dict[int, list[Value]] = {}
    for at_s, value in run:
        buckets.setdefault(int((at_s - run[0][0]) / width_s), []).append((at_s, value))
    for values in buckets.values():
        ends = {min(values, key=_height), max(values, key=_height)}
        yield from sorted(ends)


def _height(value: Value) -> float:
    return value[1]


def _counters(watched: WatchInterval) -> Iterator[tuple[str, dict[str, float]]]:
    for flow in watched.links:
        yield flow.name, flow.counters
    yield TCP, watched.tcp


def events(host: HostWatch, links: Sequence[str]) -> list[Event]:
    """The findings on these links; without any, their counters of faults that rose."""
    events: list[Event] = []
    for at, (watched, at_s) in enumerate(zip(host.intervals, host.times, strict=True)):
        texts: dict[str, list[str]] = {}
        for finding in watched.findings:
            texts.setdefault(finding.link, []).append(f"{finding.pattern}, {finding.seen}")
        for link in links:
            shown = texts.get(link) or _risen(host.flows[link][at])
            events += [(at_s, f"{link}: {text}") for text in shown]
    return events


def _risen(flow: LinkFlow | None) -> Iterator[str]:
    for name, per_s in flow.counters.items() if flow else ():
        counter = watched_by_name().get(name)
        if counter is not None and counter.kind in MARKED and 0 < per_s < LARGEST:
            yield f"{name} {per_second(per_s)}/s"
