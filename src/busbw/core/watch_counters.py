"""Counters that a watch reads in addition to those of core/counters.csv (core/watch_counters.csv),
and values that are not counters (core/levels.csv).
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import msgspec

from busbw.core.counters import Counter, Owner, counters_by_name, counters_of
from busbw.core.table_file import rows

PRIORITIES = range(8)  # of IEEE 802.1Q
DIRECTIONS = {"tx": "sent", "rx": "received"}
ETHTOOL = "ethtool -S"
_PRIORITY = "{priority}"


class WatchLevel(msgspec.Struct, frozen=True):
    """A value of which only the last reading matters."""

    name: str
    meaning: str


@cache
def levels() -> dict[str, str]:
    """What each level means, by name."""
    return {row.name: row.meaning for row in rows("core/levels.csv", WatchLevel)}


@cache
def watched_by_name() -> dict[str, Counter]:
    """All counters of a watch by name; of counters of one name that of a run counts."""
    return {row.name: row for row in (*port_counters(), *_additional())} | counters_by_name()


@cache
def port_counters() -> tuple[Counter, ...]:
    """The counters of an RDMA port."""
    additional = [row for row in _additional() if row.owner is Owner.RDMA]
    return (*counters_of(Owner.RDMA), *additional)


@cache
def nvlink_counters() -> tuple[Counter, ...]:
    """The counters of a GPU's links that only a watch reads."""
    return tuple(row for row in _additional() if row.owner is Owner.GPU)


@cache
def link_errors() -> tuple[Counter, ...]:
    """The counters of errors of a GPU's links."""
    return tuple(row for row in counters_of(Owner.GPU) if row.name.startswith(("nvlink", "pcie")))


@cache
def ethtool_names() -> frozenset[str]:
    """The counters and levels of `ethtool -S`."""
    counted = {row.name for row in _additional() if row.read_from == ETHTOOL}
    return frozenset(counted | {"outbound_pci_stalled_rd", "outbound_pci_stalled_wr"})


@cache
def tcp_names() -> frozenset[str]:
    """The counters of TCP."""
    return frozenset(row.name for row in watched_by_name().values() if row.owner is Owner.TCP)


@cache
def _additional() -> tuple[Counter, ...]:
    table = rows("core/watch_counters.csv", Counter)
    return tuple(counter for row in table for counter in _by_priority(row))


def _by_priority(row: Counter) -> Iterator[Counter]:
    """A row of all priorities as eight counters, another as it stands."""
    if _PRIORITY not in row.name:
        yield row
        return
    for number in PRIORITIES:
        name, meaning = (text.format(priority=number) for text in (row.name, row.meaning))
        yield replace(row, name=name, meaning=meaning)
