"""Optical modules: temperature and faults."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, unanswered, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import cabled, counts, evidence, hardware, total
from busbw.check.rates import window
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

EVENTS = "module_high_temp|module_bus_stuck|module_bad_shorted"

ROW = CheckRow(
    id="BW080",
    name="nic-module",
    layer=Layer.NIC,
    title="optical modules",
    right="no temperature or fault event, and each sensor below its maximum",
    why="A module that is too hot causes bit errors and shuts down. A stuck bus or a short is a defect of the module or cable.",
    fix="check the air flow at {device}; if it happens again, drain the host and replace the module",
    stays="permanent: hardware; the counters restart when the driver is loaded",
    reads=("ethtool -S: " + EVENTS.replace("|", ", "), "/sys/class/net/*/device/hwmon/hwmon*/temp*_{input,max,crit}"),
    sources=(
        "Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",
        "Linux Documentation/hwmon/sysfs-interface",
    ),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each port with a cable."""
    ports = cabled(machine)
    if not ports:
        yield skipped("no RDMA port with a cable")
    for port in ports:
        yield _judge(machine, port)


def _judge(machine: Machine, port: Port) -> Found:
    counted = counts(machine, port, (), EVENTS)
    over = window(machine, [] if isinstance(counted, str) else counted)
    events = over.counts
    sensors = [sensor for netdev in hardware(machine, port) for sensor in _sensors(machine, netdev)]
    hot = [evidence for evidence, is_hot in sensors if is_hot]
    fix = filled(ROW.fix, device=port.device)
    if hot:
        return warned(port.name, f"a sensor shows {hot[0].seen}", *hot, fix=fix)
    if total(events, ".*"):
        risen = ", ".join(f"{count.name} {count.value}" for count in events if count.value)
        return warned(port.name, f"events {over.since}: {risen}", *evidence(events), fix=fix, weight=total(events, ".*"))
    if not events:
        return unanswered(port.name, f"its driver does not count module events: {counted}", str(counted))
    warmest = f", {sensors[0][0].seen}" if sensors else ""
    return passed(port.name, f"no event {over.since}{warmest}", *evidence(events), *(evidence for evidence, _ in sensors))


def _sensors(machine: Machine, netdev: str) -> Iterator[tuple[Evidence, bool]]:
    """Each temperature, and whether it is at its maximum or above. The kernel's unit is millidegrees."""
    base = f"/sys/class/net/{netdev}/device/hwmon"
    for folder in (f"{base}/{name}" for name in machine.names(base)):
        for name in (name for name in machine.names(folder) if name.startswith("temp") and name.endswith("_input")):
            path = f"{folder}/{name}"
            own = _degrees(machine.text(path))
            bounds = [_degrees(machine.text(path.replace("_input", kind))) for kind in ("_max", "_crit")]
            most = min((bound for bound in bounds if bound), default=None)
            if own is not None:
                expected = f"below {most:g} °C" if most else ""
                yield Evidence(path, f"{own:g} °C", expected), bool(most) and own >= (most or 0)


def _degrees(text: str | None) -> float | None:
    return int(text) / 1000 if text and text.lstrip("-").isdecimal() else None


CHECK = Check(ROW, look)
