"""GIDs of RoCE ports."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, not_offered, passed, skipped, unknown, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import fabric, holder, no_fabric
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gids import V2, read_gids

ROW = CheckRow(
    id="BW072",
    name="nic-gid",
    layer=Layer.NIC,
    title="RoCE v2 GIDs",
    right="each active RoCE port has a RoCE v2 GID with an IPv4 address or a global IPv6 address",
    why="NCCL sends from such a GID. Link-local GIDs work in one network at most, and NCCL skips them if there is another.",
    fix="ip address add ADDRESS/PREFIX dev {netdev}",
    stays="the address is lost at the next reboot; set it in netplan, NetworkManager or ifcfg",
    reads=("/sys/class/infiniband/*/ports/*/gids/*", "/sys/class/infiniband/*/ports/*/gid_attrs/{types,ndevs}/*"),
    sources=("NCCL src/transport/net_ib, GID selection", "Linux Documentation/ABI/stable/sysfs-class-infiniband"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each RoCE port that collectives use."""
    ports = fabric(machine)
    if not ports:
        yield skipped(no_fabric(machine))
    for port in ports:
        yield _judge(machine, port)


def _judge(machine: Machine, port: Port) -> Found:
    gids = read_gids(machine, port.path)
    where = f"{port.path}/gids"
    if not gids or not any(gid.kind for gid in gids):
        reason = "it shows none: GIDs of other network namespaces are hidden" if machine.container else "none can be read"
        asked = bool(machine.names(where)) and port.netdev and not machine.container
        report = unknown if asked else not_offered
        return report(port.name, f"GIDs: {reason}", fix="run busbw check on the host, or the container with its network (--net=host)")
    v2 = [gid for gid in gids if gid.kind == V2]
    fix = filled(ROW.fix, netdev=holder(machine, port) or "INTERFACE")
    hidden = sum(not gid.kind for gid in gids)
    if not v2 and hidden:
        return unknown(port.name, f"the type of {hidden} of {len(gids)} GIDs cannot be read", fix=f"grep . {port.path}/gid_attrs/types/*")
    if not v2:
        seen = Evidence(f"{port.path}/gid_attrs/types/{gids[0].index}", gids[0].kind, V2)
        return failed(port.name, f"all {len(gids)} GIDs are {gids[0].kind}, which is not routed", seen, fix=fix)
    best = next((gid for gid in v2 if gid.routable), None)
    if best is None:
        seen = Evidence(f"{where}/{v2[0].index}", str(v2[0].address), "an address that is not link-local")
        return warned(port.name, "its RoCE v2 GIDs are all link-local: routers do not forward them", seen, fix=fix)
    text = str(best.ipv4 or best.address)
    return passed(port.name, f"GID {best.index} is {text} ({V2})", Evidence(f"{where}/{best.index}", str(best.address)))


CHECK = Check(ROW, look)
