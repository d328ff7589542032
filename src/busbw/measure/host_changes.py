"""Changes of one host in several spans of time, added up."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from busbw.core.telemetry import EVENTS_KEPT, UNREAD_KEPT, Carried, HostChange

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
