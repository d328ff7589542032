"""Counters that are read before and after each size (core/counters.csv): where to read each one,
its unit, and what an increase means.
"""

from dataclasses import dataclass
from enum import Enum
from functools import cache

from busbw.core.table_file import rows

# port_xmit_wait counts ticks, whose length differs by device. The shortest that NVIDIA documents is
# the time of 8 bytes at the rate of the port; older switches count 32 bytes of each lane (ibdiagnet
# manual 2.13, "Congestion Assessment on InfiniBand Links"). It lists no adapter, so a share of time
# from 8 bytes is taken as the least that a port waited.
TICKS, CREDIT_TICK_BYTES = "ticks", 8
NOTABLE_CREDIT_SHARE = 0.1  # of the time: a busy fabric that is healthy waits, but for less


class CounterKind(Enum):
    """What an increase of a counter means."""

    TRAFFIC = "traffic"  # data was transferred
    THROTTLE = "throttle"  # GPU clocks were reduced
    CONGESTION = "congestion"  # a sender was slowed or had to wait
    LOSS = "loss"  # data was lost, resent or delayed
    FAULT = "fault"  # a link or memory failed


class Owner(Enum):
    """What a counter belongs to."""

    GPU = "GPU"
    RDMA = "RDMA port"
    INTERFACE = "interface"
    TCP = "TCP"


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter.

    Multiplied by `scale`, its value is in `unit`s. Increases below `notable`, or below
    `notable_per_byte` times the bytes of traffic, are ignored; of a counter of `ticks`, waits for
    less than NOTABLE_CREDIT_SHARE of the time. A counter has `bits` bits; at its largest value it
    wraps to 0, or stays there if it `saturates`.
    """

    name: str
    owner: Owner
    read_from: str  # NVML's constant, the file in the port's directory, or the file in /proc
    kind: CounterKind
    meaning: str
    unit: str = "events"
    scale: int = 1
    bits: int = 64
    saturates: bool = False
    notable: int = 1
    notable_per_byte: float = 0.0

    @property
    def ticks(self) -> bool:
        """Whether it counts ticks of waiting, so many of which are normal."""
        return self.unit == TICKS


def credit_share(ticks_per_s: float, rate: float) -> float:
    """The least share of the time for which a port of this rate, in bytes per second, waited.

    It is never more than all of the time, also where ticks are shorter.
    """
    return min(ticks_per_s * CREDIT_TICK_BYTES / rate, 1.0)


@cache
def counters_by_name() -> dict[str, Counter]:
    """All counters of the table, by name."""
    return {row.name: row for row in rows("core/counters.csv", Counter)}


@cache
def counters_of(owner: Owner) -> tuple[Counter, ...]:
    """The counters of one owner, in the order of the table."""
    return tuple(counter for counter in counters_by_name().values() if counter.owner is owner)
