"""Optical modules: bit errors, temperature and faults."""

import re
from collections.abc import Iterator, Sequence

from busbw.check.base import check, not_offered, passed, skipped, unanswered, warned
from busbw.check.machine import Machine, RdmaPort
from busbw.check.nic.links import cabled, counter_evidence, counts, hardware, per_port, total
from busbw.check.rates import SINCE_DRIVER_LOADED, Count, window
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer

MAX_BIT_ERROR_RATE = 1e-7
FEWEST_BITS = 10**10  # with fewer, one error means nothing
CORRECTED_BITS = "rx_corrected_bits_phy|rx_bits_phy"

BER = CheckRow(
    id="BW078",
    name="nic-ber",
    layer=Layer.NIC,
    title="bit error rate before correction",
    right=(
        f"at most {MAX_BIT_ERROR_RATE:g} of the bits received, between two readings (--watch-for,"
        " --since) or since the driver was loaded"
    ),
    why=(
        "Forward error correction hides a bad optic until it no longer can. A rate above that of"
        " other ports precedes packet loss."
    ),
    fix="drain the host; clean or replace the optic of {device}, then mlxlink -d {device} -m -c -e",
    stays="permanent: hardware; the counters restart when the driver is loaded",
    reads=("ethtool -S: rx_corrected_bits_phy, rx_bits_phy",),
    sources=(
        "Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",
        "OCI oci-hpc, check_gpu_setup.py",
    ),
)
EVENTS = "module_high_temp|module_bus_stuck|module_bad_shorted"


@per_port(BER, (), CORRECTED_BITS)
def check_ber(machine: Machine, port: RdmaPort, counters: list[Count]) -> Finding:
    recent = window(machine, counters)
    # A short time may have too few bits.
    shares = _bits_by_interface(recent.counts) or _bits_by_interface(counters)
    since = recent.since if _bits_by_interface(recent.counts) else SINCE_DRIVER_LOADED
    if not shares:
        return not_offered(
            port.name, "its driver does not count corrected bits, or too few bits were received"
        )
    netdev, (fixed, bits) = max(shares.items(), key=lambda item: item[1][0] / item[1][1])
    worst = fixed / bits
    evidence = Evidence(
        f"ethtool -S {netdev}: rx_corrected_bits_phy / rx_bits_phy",
        f"{fixed} / {bits} = {worst:.1e}",
        f"at most {MAX_BIT_ERROR_RATE:g}",
    )
    text = f"{worst:.1e} of the bits had errors that were corrected, {since}"
    if worst > MAX_BIT_ERROR_RATE:
        return warned(
            port.name, text, evidence, fix=filled(BER.fix, device=port.device), weight=worst
        )
    return passed(port.name, text, evidence)


def _bits_by_interface(counters: Sequence[Count]) -> dict[str, tuple[int, int]]:
    """Corrected bits and all bits by interface; empty if one has too few."""
    by_netdev: dict[str, dict[str, int]] = {}
    for count in counters:
        by_netdev.setdefault(count.netdev, {})[count.name] = count.value
    pairs = {
        name: (counts.get("rx_corrected_bits_phy"), counts.get("rx_bits_phy", 0))
        for name, counts in by_netdev.items()
    }
    known = {
        name: (fixed, bits)
        for name, (fixed, bits) in pairs.items()
        if fixed is not None and bits >= FEWEST_BITS
    }
    return known if len(known) == len(pairs) else {}


MODULE = CheckRow(
    id="BW080",
    name="nic-module",
    layer=Layer.NIC,
    title="optical modules",
    right="no temperature or fault event, and each sensor below its maximum",
    why=(
        "A module that is too hot causes bit errors and shuts down. A stuck bus or a short is a"
        " defect of the module or cable."
    ),
    fix=(
        "check the air flow at {device}; if it happens again, drain the host and replace the module"
    ),
    stays="permanent: hardware; the counters restart when the driver is loaded",
    reads=(
        "ethtool -S: " + EVENTS.replace("|", ", "),
        "/sys/class/net/*/device/hwmon/hwmon*/temp*_{input,max,crit}",
    ),
    sources=(
        "Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",
        "Linux Documentation/hwmon/sysfs-interface",
    ),
)


@check(MODULE)
def check_module(machine: Machine) -> Iterator[Finding]:
    ports = cabled(machine)
    if not ports:
        yield skipped("no RDMA port with a cable")
    for port in ports:
        yield _judge_module(machine, port)


def _judge_module(machine: Machine, port: RdmaPort) -> Finding:
    counted = counts(machine, port, (), EVENTS)
    recent = window(machine, [] if isinstance(counted, str) else counted)
    events = recent.counts
    sensors = [sensor for netdev in hardware(machine, port) for sensor in _sensors(machine, netdev)]
    hot = [evidence for evidence, is_hot in sensors if is_hot]
    fix = filled(MODULE.fix, device=port.device)
    if hot:
        return warned(port.name, f"a sensor shows {hot[0].seen}", *hot, fix=fix)
    if total(events, ".*"):
        risen = ", ".join(f"{count.name} {count.value}" for count in events if count.value)
        return warned(
            port.name,
            f"events {recent.since}: {risen}",
            *counter_evidence(events),
            fix=fix,
            weight=total(events, ".*"),
        )
    if not events:
        return unanswered(
            port.name, f"its driver does not count module events: {counted}", str(counted)
        )
    warmest = f", {sensors[0][0].seen}" if sensors else ""
    return passed(
        port.name,
        f"no event {recent.since}{warmest}",
        *counter_evidence(events),
        *(evidence for evidence, _ in sensors),
    )


def _sensors(machine: Machine, netdev: str) -> Iterator[tuple[Evidence, bool]]:
    """Each temperature, and whether it is at its maximum or above.

    The kernel's unit is millidegrees.
    """
    base = f"/sys/class/net/{netdev}/device/hwmon"
    for folder in (f"{base}/{name}" for name in machine.names(base)):
        names = [name for name in machine.names(folder) if re.fullmatch("temp.*_input", name)]
        for name in names:
            path = f"{folder}/{name}"
            degrees = _parse_degrees(machine.text(path))
            bounds = [
                _parse_degrees(machine.text(path.replace("_input", kind)))
                for kind in ("_max", "_crit")
            ]
            limit = min((bound for bound in bounds if bound), default=None)
            if degrees is not None:
                expected = f"below {limit:g} °C" if limit else ""
                yield (
                    Evidence(path, f"{degrees:g} °C", expected),
                    bool(limit) and degrees >= (limit or 0),
                )


def _parse_degrees(text: str | None) -> float | None:
    return int(text) / 1000 if text and text.lstrip("-").isdecimal() else None
