"""Uncorrected errors of the cable or optic."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import Count, each_port, evidence, hours_up, total
from busbw.core.checking import CheckRow, Found, Layer
from busbw.core.shell_words import filled

PER_HOUR = 120  # NVSentinel's limit for symbol_error
FILES = ("symbol_error", "link_error_recovery", "port_rcv_errors", "local_link_integrity_errors", "excessive_buffer_overrun_errors")
PHY = "rx_symbol_err_phy|rx_pcs_symbol_err_phy|rx_crc_errors_phy"
NEVER = "local_link_integrity_errors|excessive_buffer_overrun_errors"

ROW = CheckRow(
    id="BW077",
    name="nic-symbol-errors",
    layer=Layer.NIC,
    title="uncorrected errors on the wire",
    right=f"none; up to {PER_HOUR} per hour of the host's uptime pass",
    why="A packet with such an error is lost. RDMA retransmits it and every packet after it.",
    fix="reseat, clean or replace the cable of {device}, then mlxlink -d {device} -m -c -e",
    stays="permanent: hardware; the counters restart when the driver is loaded",
    reads=("/sys/class/infiniband/*/ports/*/counters/{" + ",".join(FILES) + "}", f"ethtool -S: {PHY.replace('|', ', ')}", "/proc/uptime"),
    sources=("Linux Documentation/ABI/stable/sysfs-class-infiniband", "NVSentinel, NIC health monitor"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each port with a cable."""
    allowed = PER_HOUR * max(1.0, hours_up(machine) or 1.0)

    def judge(port: Port, found: list[Count]) -> Found:
        errors, never = total(found, ".*"), total(found, NEVER)
        if never or errors > allowed:
            message = f"{errors} errors since the driver was loaded"
            return warned(port.name, message, *evidence(found), fix=filled(ROW.fix, device=port.device))
        return passed(port.name, f"{errors} errors since the driver was loaded", *evidence(found))

    yield from each_port(machine, [f"counters/{name}" for name in FILES], PHY, judge)


CHECK = Check(ROW, look)
