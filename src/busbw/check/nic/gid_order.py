"""Whether the RoCE v2 GID has the same index on all ports."""

from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, skipped, warned
from busbw.check.machine import Machine
from busbw.check.nic.links import fabric, holder, no_fabric
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gids import V2, read_gids

ROW = CheckRow(
    id="BW073",
    name="nic-gid-order",
    layer=Layer.NIC,
    title="index of the RoCE v2 GID",
    right="the same on all active RoCE ports",
    why="Programs that use one index for all ports (NCCL_IB_GID_INDEX, ib_write_bw -x) then get a GID of another type or address.",
    fix="unset NCCL_IB_GID_INDEX; or drain the host, and from its console, so that the GIDs are added in the usual order: ip link set "
    "dev {netdev} down; ip link set dev {netdev} up",
    stays="GIDs are in the order in which addresses were added: give all ports the same addresses in netplan or NetworkManager",
    reads=("/sys/class/infiniband/*/ports/*/gids/*", "/sys/class/infiniband/*/ports/*/gid_attrs/types/*"),
    sources=("NCCL user guide, NCCL_IB_GID_INDEX",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each port's first RoCE v2 GID with an IPv4 address, or else with a global IPv6 address."""
    ports = fabric(machine)
    if len(ports) < 2:
        yield skipped("fewer than two active RoCE ports" if ports else no_fabric(machine))
        return
    found = {}
    for port in ports:
        v2 = [gid for gid in read_gids(machine, port.path) if gid.kind == V2 and gid.routable]
        found[port.name] = next((gid.index for gid in v2 if gid.ipv4), v2[0].index if v2 else None)
    known = [index for index in found.values() if index is not None]
    usual = max(known, key=known.count, default=None)
    for port in ports:
        index = found[port.name]
        where = f"{port.path}/gid_attrs/types/{index}"
        if index is None:
            yield not_offered(port.name, "it shows no RoCE v2 GID with a routable address")
        elif index == usual:
            yield passed(port.name, f"its RoCE v2 GID has index {index}", Evidence(where, V2))
        else:
            fix = filled(ROW.fix, netdev=holder(machine, port) or "INTERFACE")
            seen = Evidence(where, f"{V2} at {index}", f"at {usual}, as on most ports")
            yield warned(port.name, f"its RoCE v2 GID has index {index}, on most ports {usual}", seen, fix=fix)


CHECK = Check(ROW, look)
