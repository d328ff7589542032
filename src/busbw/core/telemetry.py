"""A reading of one host's GPUs, ports and counters, and the change between two readings.

Values that could not be read are absent or None, never 0. Clocks are MHz, temperatures degrees
Celsius, power watts. core/clock_reasons.csv has NVML's clocks event reasons, which say why a GPU's
clocks are reduced.
"""

from dataclasses import dataclass
from enum import Enum
from functools import cache

import msgspec

from busbw.core.counters import Counter, CounterKind, counters_by_name
from busbw.core.table_file import rows

# At most so many of each are kept in a HostChange.
PORTS_KEPT = 16  # those with the most traffic
MOVED_KEPT = 40  # GPUs, TCP, then ports
EVENTS_KEPT = 16
UNREAD_KEPT = 6
# Of the busiest port's bytes: a port with less carried none of the measured data
MIN_USED_SHARE = 0.01
TCP = "tcp"  # the subject of counters of the whole network namespace


class Severity(Enum):
    """How serious a clocks event reason is."""

    HARMLESS = "harmless"
    LOAD = "load"  # normal under load; reported only if clocks fell
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class ClockReason:
    """One bit of NVML's clocks event reasons, formerly throttle reasons."""

    bit: int
    name: str
    severity: Severity
    meaning: str


@cache
def all_clock_reasons() -> tuple[ClockReason, ...]:
    """The table of reasons, by bit."""
    return rows("core/clock_reasons.csv", ClockReason)


# The severity of the counters in core/counters.py whose kind is THROTTLE.
POLICY_SEVERITY = {
    "power_policy": Severity.LOAD,
    "thermal_policy": Severity.BAD,
    "board_limit_policy": Severity.BAD,
    "reliability_policy": Severity.LOAD,
}


@cache
def reason_severity() -> dict[str, Severity]:
    """The severity of each clock reason and policy, by name."""
    return {reason.name: reason.severity for reason in all_clock_reasons()} | POLICY_SEVERITY


def clock_reasons(bits: int) -> list[str]:
    """Names of the reasons in NVML's bit mask; a bit without a name is its hexadecimal number."""
    names = [reason.name for reason in all_clock_reasons() if bits & reason.bit]
    unnamed = bits & ~sum(reason.bit for reason in all_clock_reasons())
    return names + [f"{1 << bit:#x}" for bit in range(unnamed.bit_length()) if unnamed >> bit & 1]


class GpuReading(msgspec.Struct, frozen=True):
    """One reading of one GPU.

    `bus` is spelled as in Device: "0000:00:06". `reasons` is NVML's bit mask of clocks event
    reasons.
    """

    bus: str
    sm_mhz: int | None = None
    sm_max_mhz: int | None = None
    memory_mhz: int | None = None
    memory_max_mhz: int | None = None
    reasons: int | None = None
    temperature_c: int | None = None
    power_w: int | None = None
    counters: dict[str, int] = {}


class XidEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An Xid of a GPU, or an SXid of an NVSwitch (`switch`), logged `times` times; `bus` is the
    failed device's.
    """

    bus: str
    number: int
    times: int = 1
    switch: bool = False


class HostReading(msgspec.Struct, frozen=True):
    """One host at `at_s` of its monotonic clock.

    `counters` are by port or "tcp"; `events` are those since the previous reading.
    """

    host: str
    at_s: float
    gpus: list[GpuReading] = []
    counters: dict[str, dict[str, int]] = {}
    events: list[XidEvent] = []
    unread: list[str] = []


class LinkTraffic(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one link of a watched run carried during a row. None is unknown, never 0.

    `sent` and `received` are bytes. Pauses are seconds: `pause_in_s` is how long the other end kept
    this port from sending, `pause_out_s` how long this port kept the other end. The other fields
    count events, as in a watch (core.link_samples.LinkFlow).
    """

    name: str
    kind: str
    sent: int | None = None
    received: int | None = None
    pause_in_s: float | None = None
    pause_out_s: float | None = None
    cnp_in: int | None = None
    cnp_out: int | None = None
    ecn: int | None = None
    lost: int | None = None
    dropped: int | None = None


class HostChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What changed on one host while one row was measured; unchanged values are left out.

    Lists have one value per GPU, for the host's distinct buses in order of `world.devices`; None is
    unknown. Values are those after the row. `sm_before_mhz` is present if a clock changed,
    `sm_max_mhz` and `memory_mhz` if a clock is below its maximum. `throttled` has, by bus, each
    reason for reduced clocks and its seconds, None if only its flag was seen. `sent` and `received`
    are bytes by port; `moved` is the increase of every other counter, by port, bus or "tcp".
    `unread` says what is unknown, and why. `links` has the links of the host where the run is
    watched (--watch); `resent` are then TCP's segments sent again.
    """

    host: str
    seconds: float
    sm_mhz: list[int | None] = []
    sm_before_mhz: list[int | None] = []
    sm_max_mhz: list[int | None] = []
    memory_mhz: list[int | None] = []
    temperature_c: list[int | None] = []
    power_w: list[int | None] = []
    throttled: dict[str, dict[str, float | None]] = {}
    sent: dict[str, int] = {}
    received: dict[str, int] = {}
    moved: dict[str, dict[str, int]] = {}
    events: list[XidEvent] = []
    unread: list[str] = []
    links: list[LinkTraffic] = []
    resent: int | None = None


def increase(counter: Counter, before: int, after: int) -> int | None:
    """The counter's increase in its unit; None if unknown because it was reset or is saturated.

    A 32-bit counter that fell by more than half of its range has wrapped; a smaller fall counts as
    a reset.
    """
    if counter.saturates and before == (1 << counter.bits) - 1:
        return None
    if after >= before:
        return (after - before) * counter.scale
    if counter.saturates or counter.bits != 32:
        return None
    wrapped = after - before + (1 << counter.bits)
    half = 1 << (counter.bits - 1)
    return wrapped * counter.scale if wrapped < half else None


def change(before: HostReading, after: HostReading) -> HostChange:
    """The change between two consecutive readings of one host."""
    unread = list(after.unread)
    gpus_before = {gpu.bus: gpu for gpu in before.gpus}
    pairs = [(gpus_before.get(gpu.bus, GpuReading(gpu.bus)), gpu) for gpu in after.gpus]
    increases = {
        gpu.bus: _increases(gpu.bus, earlier.counters, gpu.counters, unread)
        for earlier, gpu in pairs
    }
    for port, values in after.counters.items():
        increases[port] = _increases(port, before.counters.get(port, {}), values, unread)
    sent = _traffic(increases, ("port_xmit_data", "tx_bytes"))
    received = _traffic(increases, ("port_rcv_data", "rx_bytes"))
    ports = _busiest(sent, received)
    throttled = {gpu.bus: _throttled(earlier, gpu, increases[gpu.bus]) for earlier, gpu in pairs}
    sm_mhz = [gpu.sm_mhz for gpu in after.gpus]
    memory_mhz = [gpu.memory_mhz for gpu in after.gpus]
    return HostChange(
        host=after.host,
        seconds=round(after.at_s - before.at_s, 6),
        sm_mhz=_if_any_known(sm_mhz),
        sm_before_mhz=_if_any_differs([earlier.sm_mhz for earlier, _ in pairs], sm_mhz),
        sm_max_mhz=_if_any_differs([gpu.sm_max_mhz for gpu in after.gpus], sm_mhz),
        memory_mhz=_if_any_differs(memory_mhz, [gpu.memory_max_mhz for gpu in after.gpus]),
        temperature_c=_if_any_known([gpu.temperature_c for gpu in after.gpus]),
        power_w=_if_any_known([gpu.power_w for gpu in after.gpus]),
        throttled={bus: reasons for bus, reasons in throttled.items() if reasons},
        sent={port: sent[port] for port in ports if port in sent},
        received={port: received[port] for port in ports if port in received},
        moved=_moved(increases),
        events=after.events[:EVENTS_KEPT],
        unread=unread[:UNREAD_KEPT],
    )


def _increases(
    subject: str, before: dict[str, int], after: dict[str, int], unread: list[str]
) -> dict[str, int]:
    """The increase of every counter in both readings; for unknown increases, `unread` gets a
    message.
    """
    increases = {}
    for name, value in after.items():
        if name not in before or name not in counters_by_name():
            continue
        by = increase(counters_by_name()[name], before[name], value)
        if by is not None:
            increases[name] = by
        elif value < before[name]:
            unread.append(f"{subject} {name}: it was reset")
        else:
            unread.append(f"{subject} {name}: it is saturated")
    return increases


def _traffic(increases: dict[str, dict[str, int]], names: tuple[str, ...]) -> dict[str, int]:
    """The bytes of each port; a port has at most one counter of these names."""
    traffic = {}
    for port, by_name in increases.items():
        for name in names:
            if by_name.get(name):
                traffic[port] = by_name[name]
    return traffic


def _busiest(sent: dict[str, int], received: dict[str, int]) -> list[str]:
    """The ports with the most traffic, by name."""
    ports = sorted(
        sent.keys() | received.keys(),
        key=lambda port: (-sent.get(port, 0) - received.get(port, 0), port),
    )
    return sorted(ports[:PORTS_KEPT])


def _moved(increases: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The counters of events that increased, by port, bus or "tcp"; at most MOVED_KEPT of these."""
    moved: dict[str, dict[str, int]] = {}
    for subject, by_name in increases.items():
        events = {name: by for name, by in by_name.items() if by and _is_event(name)}
        if events and len(moved) < MOVED_KEPT:
            moved[subject] = events
    return moved


def _is_event(name: str) -> bool:
    return counters_by_name()[name].kind not in (CounterKind.TRAFFIC, CounterKind.THROTTLE)


def _throttled(
    before: GpuReading, after: GpuReading, increases: dict[str, int]
) -> dict[str, float | None]:
    """The reasons that are not harmless: policies with their seconds, flags of both readings
    with None.
    """
    policies: dict[str, float | None] = {
        name: by / 1e9
        for name, by in increases.items()
        if by and counters_by_name()[name].kind is CounterKind.THROTTLE
    }
    flags = clock_reasons((before.reasons or 0) | (after.reasons or 0))
    return policies | {
        name: None for name in flags if reason_severity().get(name) is not Severity.HARMLESS
    }


def _if_any_known(values: list[int | None]) -> list[int | None]:
    return values if any(value is not None for value in values) else []


def _if_any_differs(values: list[int | None], others: list[int | None]) -> list[int | None]:
    """The values, if any is known to differ from the other one of its GPU."""
    for value, other in zip(values, others, strict=True):
        if value is not None and other is not None and value != other:
            return values
    return []
