"""GIDs of RoCE ports: their types, addresses and indices."""

from collections.abc import Iterator

from busbw.check.base import check, failed, not_offered, passed, skipped, unknown, warned
from busbw.check.machine import Machine, RdmaPort
from busbw.check.nic.links import fabric, holder, no_fabric
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.nic import V2, read_gids

GID = CheckRow(
    id="BW072",
    name="nic-gid",
    layer=Layer.NIC,
    title="RoCE v2 GIDs",
    right="each active RoCE port has a RoCE v2 GID with an IPv4 address or a global IPv6 address",
    why=(
        "NCCL sends from such a GID. Link-local GIDs work in one network at most, and NCCL skips"
        " them if there is another."
    ),
    fix="ip address add ADDRESS/PREFIX dev {netdev}",
    stays="the address is lost at the next reboot; set it in netplan, NetworkManager or ifcfg",
    reads=(
        "/sys/class/infiniband/*/ports/*/gids/*",
        "/sys/class/infiniband/*/ports/*/gid_attrs/{types,ndevs}/*",
    ),
    sources=(
        "NCCL src/transport/net_ib, GID selection",
        "Linux Documentation/ABI/stable/sysfs-class-infiniband",
    ),
)


@check(GID)
def check_gid(machine: Machine) -> Iterator[Finding]:
    """A finding for each RoCE port that collectives use."""
    ports = fabric(machine)
    if not ports:
        yield skipped(no_fabric(machine))
    for port in ports:
        yield _judge_gid(machine, port)


def _judge_gid(machine: Machine, port: RdmaPort) -> Finding:
    gids = read_gids(machine, port.path)
    if not gids or not any(gid.kind for gid in gids):
        return _judge_without_gids(machine, port)
    v2 = [gid for gid in gids if gid.kind == V2]
    fix = filled(GID.fix, netdev=holder(machine, port) or "INTERFACE")
    hidden = sum(not gid.kind for gid in gids)
    if not v2 and hidden:
        message = f"the type of {hidden} of {len(gids)} GIDs cannot be read"
        return unknown(port.name, message, fix=f"grep . {port.path}/gid_attrs/types/*")
    if not v2:
        evidence = Evidence(f"{port.path}/gid_attrs/types/{gids[0].index}", gids[0].kind, V2)
        message = f"all {len(gids)} GIDs are {gids[0].kind}, which is not routed"
        return failed(port.name, message, evidence, fix=fix)
    routable = next((gid for gid in v2 if gid.routable), None)
    where = f"{port.path}/gids"
    if routable is None:
        message = "its RoCE v2 GIDs are all link-local: routers do not forward them"
        expected = "an address that is not link-local"
        evidence = Evidence(f"{where}/{v2[0].index}", str(v2[0].address), expected)
        return warned(port.name, message, evidence, fix=fix)
    text = str(routable.ipv4 or routable.address)
    evidence = Evidence(f"{where}/{routable.index}", str(routable.address))
    return passed(port.name, f"GID {routable.index} is {text} ({V2})", evidence)


def _judge_without_gids(machine: Machine, port: RdmaPort) -> Finding:
    reason = "none can be read"
    if machine.container:
        reason = "it shows none: GIDs of other network namespaces are hidden"
    expected = machine.names(f"{port.path}/gids") and port.netdev and not machine.container
    report = unknown if expected else not_offered
    fix = "run busbw check on the host, or the container with its network (--net=host)"
    return report(port.name, f"GIDs: {reason}", fix=fix)


GID_ORDER = CheckRow(
    id="BW073",
    name="nic-gid-order",
    layer=Layer.NIC,
    title="index of the RoCE v2 GID",
    right="the same on all active RoCE ports",
    why=(
        "Programs that use one index for all ports (NCCL_IB_GID_INDEX, ib_write_bw -x) then get a"
        " GID of another type or address."
    ),
    fix=(
        "unset NCCL_IB_GID_INDEX; or drain the host, and from its console, so that the GIDs are "
        "added in the usual order: ip link set dev {netdev} down; ip link set dev {netdev} up"
    ),
    stays=(
        "GIDs are in the order in which addresses were added: give all ports the same addresses in"
        " netplan or NetworkManager"
    ),
    reads=(
        "/sys/class/infiniband/*/ports/*/gids/*",
        "/sys/class/infiniband/*/ports/*/gid_attrs/types/*",
    ),
    sources=("NCCL user guide, NCCL_IB_GID_INDEX",),
)


@check(GID_ORDER)
def check_gid_order(machine: Machine) -> Iterator[Finding]:
    """A finding for each RoCE port that collectives use, on the index of its first RoCE v2 GID."""
    ports = fabric(machine)
    if len(ports) < 2:
        yield skipped("fewer than two active RoCE ports" if ports else no_fabric(machine))
        return
    indices = {}
    for port in ports:
        v2 = [gid for gid in read_gids(machine, port.path) if gid.kind == V2 and gid.routable]
        with_ipv4 = [gid for gid in v2 if gid.ipv4]
        best = (with_ipv4 or v2)[:1]
        indices[port.name] = best[0].index if best else None
    known = [index for index in indices.values() if index is not None]
    usual = max(known, key=known.count, default=None)
    for port in ports:
        index = indices[port.name]
        where = f"{port.path}/gid_attrs/types/{index}"
        if index is None:
            yield not_offered(port.name, "it shows no RoCE v2 GID with a routable address")
        elif index == usual:
            yield passed(port.name, f"its RoCE v2 GID has index {index}", Evidence(where, V2))
        else:
            fix = filled(GID_ORDER.fix, netdev=holder(machine, port) or "INTERFACE")
            evidence = Evidence(where, f"{V2} at {index}", f"at {usual}, as on most ports")
            yield warned(
                port.name,
                f"its RoCE v2 GID has index {index}, on most ports {usual}",
                evidence,
                fix=fix,
            )
