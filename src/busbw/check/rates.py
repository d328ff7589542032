"""How fast counters rise: from an earlier reading of the machine, never from its uptime."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from busbw.check.machine import Machine
from busbw.core.counters import Counter, CounterKind, Owner
from busbw.core.sizes import span
from busbw.core.telemetry import increase
from busbw.core.watch_counters import watched_by_name
from busbw.host.settings import uptime
from busbw.host.source import once

TIME_CALL = "time"  # the call with the time of a reading
HOSTNAME = "/proc/sys/kernel/hostname"
UPTIME_FILE, BOOT_ID_FILE = "/proc/uptime", "/proc/sys/kernel/random/boot_id"
SINCE_DRIVER_LOADED = "since the driver was loaded"
RATE_UNKNOWN = "how fast they rise is not known"
WHEN_UNKNOWN = "when is not known"
UNKNOWN_RATES = (RATE_UNKNOWN, WHEN_UNKNOWN)  # end what a finding says of a total
FALSE_ALARM_CHANCE = 0.01  # of naming a counter that rises at the allowed rate
HOUR_S, DAY_S = 3600, 86400


@dataclass(frozen=True, slots=True)
class Count:
    """One counter. `netdev` is the interface that has it, '' for the RDMA port itself.

    `rise` is how much it rose since the earlier reading, None if that is not known.
    """

    name: str
    value: int
    where: str
    netdev: str = ""
    rise: int | None = None

    @property
    def saturated(self) -> bool:
        """Whether it stays at the largest value that its bits hold: it misses later events."""
        row = watched_by_name().get(self.name)
        return row is not None and row.saturates and self.value == (1 << row.bits) - 1

    @property
    def text(self) -> str:
        """`65535, the most that it can hold`, or `12, 3 more now`."""
        if self.saturated:
            return f"{self.value}, the most that it can hold"
        return f"{self.value}, {self.rise} more now" if self.rise else str(self.value)


@dataclass(frozen=True, slots=True)
class Window:
    """Counters over a time.

    Their values are how they rose since the earlier reading, `seconds` ago; else, with `seconds`
    None, their totals. `since` says which, as words.
    """

    counts: tuple[Count, ...]
    since: str
    seconds: float | None = None


def risen(name: str, before: int, now: int) -> int | None:
    """How much a counter rose; None if it was saturated before.

    After a reset all of its value is new.
    """
    row = watched_by_name().get(name) or Counter(name, Owner.RDMA, "", CounterKind.LOSS, "")
    if row.saturates and now >= 1 << row.bits:  # the driver has a wider one
        return now - before if now >= before else now
    by = increase(row, before, now)
    return now if by is None and now < before else by


def with_rises(now: Sequence[Count], before: Sequence[Count]) -> list[Count]:
    """Counters with how much they rose; None for those that were not read before."""
    was = {count.where: count.value for count in before}
    rises = {
        count.where: risen(count.name, was[count.where], count.value)
        for count in now
        if count.where in was
    }
    return [replace(count, rise=rises.get(count.where)) for count in now]


def window(machine: Machine, counters: Sequence[Count]) -> Window:
    """The rises as values if all are known, else the totals."""
    seconds = interval_s(machine)
    rises = [replace(count, value=count.rise) for count in counters if count.rise is not None]
    if seconds is None or len(rises) < len(counters):
        return Window(tuple(counters), SINCE_DRIVER_LOADED)
    return Window(tuple(rises), f"in {span(seconds)}", seconds)


def time_now() -> str:
    """The text of TIME_CALL."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@once
def interval_s(machine: Machine) -> float | None:
    """Seconds between the earlier reading and this one; None without one."""
    if machine.earlier is None:
        return None
    before, now = (
        uptime(reading.text(UPTIME_FILE) or "") for reading in (machine.earlier, machine)
    )
    if before and now > before:
        return now - before
    times = [reading.call(TIME_CALL, time_now).text or "" for reading in (machine.earlier, machine)]
    try:
        begin, end = map(datetime.fromisoformat, times)
        seconds = (end - begin).total_seconds()
    except (TypeError, ValueError):
        return None
    return seconds if seconds > 0 else None


def too_fast(by: int, seconds: float, per_hour: float) -> bool:
    """Whether `by` events in `seconds` show a rate above `per_hour`.

    Chernoff's bound for as many events at that rate must be below FALSE_ALARM_CHANCE.
    """
    expected = per_hour * seconds / HOUR_S
    if by <= expected:
        return False
    return by - expected - by * math.log(by / expected) < math.log(FALSE_ALARM_CHANCE)
