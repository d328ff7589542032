"""Whether a subnet manager has configured InfiniBand ports."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, skipped, unread
from busbw.check.machine import Machine
from busbw.check.nic.links import own
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

ROW = CheckRow(
    id="BW063",
    name="nic-subnet-manager",
    layer=Layer.NIC,
    title="subnet manager of InfiniBand ports",
    right="each port with a link knows the address of a subnet manager (sm_lid is not 0)",
    why="Without a subnet manager a port with a link stays in the state INIT: it has no address and sends nothing.",
    fix="sminfo -C {device} queries it; if the fabric has a subnet manager (managed switch, UFM), repair that, as a second one may "
    "reroute running jobs; if it has none, start one: opensm on one host",
    stays="if the service is enabled: systemctl enable opensm (its name differs between distributions)",
    reads=("/sys/class/infiniband/*/ports/*/{sm_lid,state,phys_state}",),
    sources=("InfiniBand Architecture Specification, subnet management",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each InfiniBand port with a link."""
    ports = [port for port in own(machine) if port.layer == "InfiniBand"]
    linked = [port for port in ports if (machine.text(f"{port.path}/phys_state") or "5").startswith("5")]
    if not linked:
        yield skipped("no InfiniBand port with a link" if ports else "no InfiniBand port")
    for port in linked:
        path = f"{port.path}/sm_lid"
        reading = machine.read(path)
        try:
            lid = int(reading.text or "", 0)
        except ValueError:
            yield unread(port.name, reading, "the address of the subnet manager")
            continue
        evidence = (Evidence(path, reading.text or "", "not 0x0"), Evidence(f"{port.path}/state", machine.text(f"{port.path}/state") or ""))
        if lid:
            yield passed(port.name, f"its subnet manager has LID {lid}", *evidence)
        else:
            yield failed(port.name, "it has a link, but no subnet manager", *evidence, fix=filled(ROW.fix, device=port.device))


CHECK = Check(ROW, look)
