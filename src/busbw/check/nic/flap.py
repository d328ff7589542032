"""How often links went down."""

from collections.abc import Iterator
from statistics import median

from busbw.check.base import Check, passed, skipped, unknown, warned
from busbw.check.machine import Machine
from busbw.check.nic.links import Count, cabled, counts, evidence, hardware, hours_up
from busbw.core.checking import CheckRow, Found, Layer
from busbw.core.shell_words import filled

MANY = 5  # Azure's health check allows fewer in 24 hours

ROW = CheckRow(
    id="BW076",
    name="nic-flap",
    layer=Layer.NIC,
    title="links that went down",
    right=f"fewer than {MANY} times since the driver was loaded, above the median of this host's ports",
    why="While a link is down the job's connections wait. After some seconds they break (NCCL error 12). Causes: cable, optic, switch.",
    fix="dmesg -T | grep -i 'link down' shows when it went down; drain the host; reseat, clean or replace the cable of {device}",
    stays="permanent: hardware; the counters restart when the driver is loaded",
    reads=("/sys/class/infiniband/*/ports/*/counters/link_downed", "ethtool -S: link_down_events_phy",
           "/sys/class/net/*/carrier_down_count", "/proc/uptime"),
    sources=("Azure HPC node health checks, azure_ib_link_flapping", "Linux Documentation/ABI/testing/sysfs-class-net"),
)  # fmt: skip


def look(machine: Machine) -> Iterator[Found]:
    """Each port with a cable. The median is subtracted: work on a switch takes all ports down."""
    ports = cabled(machine)
    if not ports:
        yield skipped("no RDMA port with a cable")
    found = {}
    for port in ports:
        counted = counts(machine, port, ("counters/link_downed",), "link_down_events_phy")
        extra = [_carrier(machine, netdev) for netdev in hardware(machine, port)]
        found[port.name] = ([] if isinstance(counted, str) else counted) + [count for count in extra if count]
    downs = {name: max(count.value for count in counted) for name, counted in found.items() if counted}
    common = median(downs.values()) if len(downs) > 2 else 0
    hours = hours_up(machine)
    since = "since the driver was loaded" + (f" (the host has been up for {hours / 24:.1f} days)" if hours else "")
    for port in ports:
        times = downs.get(port.name)
        seen = evidence(found[port.name], expected=f"below {MANY}")
        if times is None:
            yield unknown(port.name, "no link-down counter can be read")
        elif times - common >= MANY:
            message = f"its link went down {times} times {since}" + (f"; the median of this host's ports is {common:g}" if common else "")
            yield warned(port.name, message, *seen, fix=filled(ROW.fix, device=port.device))
        else:
            yield passed(port.name, f"its link went down {times} times {since}", *seen)


def _carrier(machine: Machine, netdev: str) -> Count | None:
    path = f"/sys/class/net/{netdev}/carrier_down_count"
    text = machine.text(path) or ""
    return Count("carrier_down_count", int(text), path, netdev) if text.isdecimal() else None


CHECK = Check(ROW, look)
