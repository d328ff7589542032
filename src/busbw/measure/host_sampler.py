"""Samples of this host's counters while a cell and a row are measured.

Changes of one host in several spans of time, added up.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from busbw.core.result import Device
from busbw.core.telemetry import (
    EVENTS_KEPT,
    REASON_SEVERITY,
    UNREAD_KEPT,
    Carried,
    HostChange,
    Reading,
    Severity,
    XidEvent,
    change,
)
from busbw.host.nvml_samples import Vitals
from busbw.measure.link_sampler import LinkSampler

Number = TypeVar("Number", int, float)
NAMES = ("name", "kind")  # of a link; its other fields are counts


def together(parts: Sequence[HostChange]) -> HostChange:
    """One or more parts as one change. Clocks, temperatures and powers are those after the last."""
    last = parts[-1]
    return msgspec.structs.replace(
        last,
        seconds=round(sum(part.seconds for part in parts), 6),
        sm_before_mhz=next((part.sm_before_mhz for part in parts if part.sm_before_mhz), []),
        throttled=_throttles([part.throttled for part in parts]),
        sent=_sums([part.sent for part in parts]),
        received=_sums([part.received for part in parts]),
        moved=_tables([part.moved for part in parts]),
        events=[event for part in parts for event in part.events][:EVENTS_KEPT],
        unread=list(dict.fromkeys(reason for part in parts for reason in part.unread))[
            :UNREAD_KEPT
        ],
        links=_links([part.links for part in parts]),
        resent=_sum([part.resent for part in parts]),
    )


def _sums(tables: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for table in tables:
        total.update(table)
    return dict(total)


def _tables(every: Sequence[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    names = dict.fromkeys(name for tables in every for name in tables)
    return {name: _sums([tables[name] for tables in every if name in tables]) for name in names}


def _throttles(
    every: Sequence[Mapping[str, Mapping[str, float | None]]],
) -> dict[str, dict[str, float | None]]:
    """Seconds by bus and reason; None where only the flag was seen."""
    total: dict[str, dict[str, float | None]] = {}
    for table in every:
        for bus, held in table.items():
            reasons = total.setdefault(bus, {})
            for reason, seconds in held.items():
                known = [value for value in (reasons.get(reason), seconds) if value is not None]
                reasons[reason] = sum(known) if known else None
    return total


def _links(every: Sequence[Sequence[Carried]]) -> list[Carried]:
    """Each link's counts added up."""
    by_link: dict[tuple[str, str], list[Carried]] = {}
    for links in every:
        for link in links:
            by_link.setdefault((link.name, link.kind), []).append(link)
    return [_joined(parts) for parts in by_link.values()]


def _joined(parts: Sequence[Carried]) -> Carried:
    counts: dict[str, Any] = {
        field: _sum([getattr(part, field) for part in parts])
        for field in Carried.__struct_fields__
        if field not in NAMES
    }
    return msgspec.structs.replace(parts[0], **counts)


def _sum(values: Sequence[Number | None]) -> Number | None:
    """None if one is unknown."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known and len(known) == len(values) else None


GPU_SHARE = 0.05  # of the time of a sweep


class HostSampler:
    """Readings of this host, by the one of its processes that gets its `devices`; others read
    nothing.

    With `watch`, a row also has what each link carried.
    """

    def __init__(self, devices: Sequence[Device], *, watch: bool = False) -> None:
        self._vitals = Vitals(devices, gpu_share=GPU_SHARE) if devices else None
        self._links = LinkSampler(devices) if devices and watch else None
        self._row = self._latest = self._vitals.read() if self._vitals else None
        self._events: list[XidEvent] = []
        self._slowed = False

    def throttled_since_last(self) -> bool:
        """Whether heat or a power brake slowed a GPU of this host since this was last asked, as
        far as NVML has been asked since.
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
        """What came before, a warm-up, is no part of the next row; its errors of GPUs are."""
        self._row, self._slowed = self._read(), False
        if self._links is not None:
            self._links.row()

    def row(self) -> HostChange | None:
        """The changes since the last row."""
        first, last = self._row, self._read()
        if first is None or last is None:
            return None
        whole: Reading = msgspec.structs.replace(last, events=self._events)
        self._row, self._events = last, []
        found = change(first, whole)
        if self._links is None:
            return found
        links, resent = self._links.row()
        unread = list(dict.fromkeys([*found.unread, *self._links.unread]))[:UNREAD_KEPT]
        return msgspec.structs.replace(found, links=links, resent=resent, unread=unread)

    def _read(self) -> Reading | None:
        if self._vitals is None or self._latest is None:
            return None
        before, self._latest = self._latest, self._vitals.read()
        self._events += self._latest.events
        if self._latest.gpus is not before.gpus:  # NVML has been asked
            reasons = change(before, self._latest).throttled.values()
            self._slowed |= any(
                REASON_SEVERITY.get(reason) is Severity.BAD for held in reasons for reason in held
            )
        return self._latest

    def close(self) -> None:
        """Close the readers."""
        for reader in (self._vitals, self._links):
            if reader is not None:
                reader.close()
