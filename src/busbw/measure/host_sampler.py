"""Changes of this host's counters while a row is measured.

HostSampler reads them; `add_changes` adds up the changes of one host in several spans of time.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from busbw.core.result import RankDevice
from busbw.core.telemetry import (
    EVENTS_KEPT,
    UNREAD_KEPT,
    HostChange,
    HostReading,
    LinkTraffic,
    Severity,
    XidEvent,
    change,
    reason_severity,
)

if TYPE_CHECKING:
    from busbw.host.host_vitals import Vitals
    from busbw.measure.link_sampler import LinkSampler

Number = TypeVar("Number", int, float)
NAMES = ("name", "kind")  # of a link; its other fields are counts
GPU_SHARE = 0.05  # of the time of a sweep


def add_changes(parts: Sequence[HostChange]) -> HostChange:
    """The changes of one host in consecutive spans of time, one or more, as a single change.

    Clocks, temperatures and powers are those after the last span.
    """
    last = parts[-1]
    events: list[XidEvent] = []
    unread: dict[str, None] = {}  # a set that keeps the order
    for part in parts:
        events += part.events
        unread |= dict.fromkeys(part.unread)
    return msgspec.structs.replace(
        last,
        seconds=round(sum(part.seconds for part in parts), 6),
        sm_before_mhz=next((part.sm_before_mhz for part in parts if part.sm_before_mhz), []),
        throttled=_throttled_s([part.throttled for part in parts]),
        sent=_totals([part.sent for part in parts]),
        received=_totals([part.received for part in parts]),
        moved=_totals_by_name([part.moved for part in parts]),
        events=events[:EVENTS_KEPT],
        unread=list(unread)[:UNREAD_KEPT],
        links=_carried([part.links for part in parts]),
        resent=_sum_if_known([part.resent for part in parts]),
    )


def _totals(tables: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for table in tables:
        total.update(table)
    return dict(total)


def _totals_by_name(parts: Sequence[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    totals: dict[str, Counter[str]] = {}
    for part in parts:
        for name, table in part.items():
            totals.setdefault(name, Counter()).update(table)
    return {name: dict(total) for name, total in totals.items()}


def _throttled_s(
    parts: Sequence[Mapping[str, Mapping[str, float | None]]],
) -> dict[str, dict[str, float | None]]:
    """Seconds by bus and reason; None where only the flag was seen."""
    total: dict[str, dict[str, float | None]] = {}
    for part in parts:
        for bus, seconds_by_reason in part.items():
            reasons = total.setdefault(bus, {})
            for reason, seconds in seconds_by_reason.items():
                known = [value for value in (reasons.get(reason), seconds) if value is not None]
                reasons[reason] = sum(known) if known else None
    return total


def _carried(parts: Sequence[Sequence[LinkTraffic]]) -> list[LinkTraffic]:
    """What each link carried in all parts."""
    by_link: dict[tuple[str, str], list[LinkTraffic]] = {}
    for links in parts:
        for link in links:
            by_link.setdefault((link.name, link.kind), []).append(link)
    return [_carried_by_link(of_link) for of_link in by_link.values()]


def _carried_by_link(parts: Sequence[LinkTraffic]) -> LinkTraffic:
    counts: dict[str, Any] = {}
    for field in LinkTraffic.__struct_fields__:
        if field not in NAMES:
            counts[field] = _sum_if_known([getattr(part, field) for part in parts])
    return msgspec.structs.replace(parts[0], **counts)


def _sum_if_known(values: Sequence[Number | None]) -> Number | None:
    """None if one of the values is unknown."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known and len(known) == len(values) else None


def _vitals(devices: Sequence[RankDevice]) -> "Vitals":
    from busbw.host.host_vitals import Vitals

    return Vitals(devices, gpu_share=GPU_SHARE)


def _link_sampler(devices: Sequence[RankDevice]) -> "LinkSampler":
    from busbw.measure.link_sampler import LinkSampler

    return LinkSampler(devices)


class HostSampler:
    """Reads the counters of this host for each row.

    Only the process that gets the `devices` of the host reads; without any the sampler reads
    nothing. With `watch`, a row also has what each link carried.
    """

    def __init__(self, devices: Sequence[RankDevice], *, watch: bool = False) -> None:
        self._vitals: Vitals | None = None
        self._links: LinkSampler | None = None
        if devices:
            self._vitals = _vitals(devices)
        if devices and watch:
            self._links = _link_sampler(devices)
        self._row_start = self._latest = self._vitals.read() if self._vitals else None
        self._events: list[XidEvent] = []
        self._slowed = False

    def throttled_since_last(self) -> bool:
        """Whether heat or a power brake slowed a GPU of this host since the last call.

        Only the readings of NVML since then count.
        """
        if self._vitals is None:
            return False
        if self._vitals.gpus_due:
            self._read()
        slowed, self._slowed = self._slowed, False
        if slowed:
            self._vitals.ask_gpus_again()  # what is measured again must not pass unseen
        return slowed

    def begin(self) -> None:
        """Begin the first row after a warm-up, of which only errors of GPUs count."""
        self._row_start, self._slowed = self._read(), False
        if self._links is not None:
            self._links.row()

    def row(self) -> HostChange | None:
        """The changes since the last row."""
        first, last = self._row_start, self._read()
        if first is None or last is None:
            return None
        with_events: HostReading = msgspec.structs.replace(last, events=self._events)
        self._row_start, self._events = last, []
        changes = change(first, with_events)
        if self._links is None:
            return changes
        links, resent = self._links.row()
        unread = list(dict.fromkeys([*changes.unread, *self._links.unread]))[:UNREAD_KEPT]
        return msgspec.structs.replace(changes, links=links, resent=resent, unread=unread)

    def _read(self) -> HostReading | None:
        if self._vitals is None or self._latest is None:
            return None
        before, self._latest = self._latest, self._vitals.read()
        self._events += self._latest.events
        if self._latest.gpus is not before.gpus:  # NVML has been asked
            throttled = change(before, self._latest).throttled
            reasons = {reason for of_gpu in throttled.values() for reason in of_gpu}
            self._slowed |= any(reason_severity().get(reason) is Severity.BAD for reason in reasons)
        return self._latest

    def close(self) -> None:
        for reader in (self._vitals, self._links):
            if reader is not None:
                reader.close()
