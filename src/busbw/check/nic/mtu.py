"""The MTU of RoCE and eRDMA interfaces."""

from collections.abc import Iterator

from busbw.check.base import check, judged, not_offered, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.nic.links import driver, fabric, hardware, holder, no_fabric
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer

MIN_MTU = 4200  # a RoCE payload of 4096 bytes and its headers

MTU = CheckRow(
    id="BW070",
    name="nic-mtu",
    layer=Layer.NIC,
    title="MTU of RoCE interfaces",
    right=f"{MIN_MTU} bytes or more, so that RDMA packets carry 4096 bytes",
    why=(
        "An MTU of 1500 limits RDMA packets to 1024 bytes of data. 7.4 % of each packet is then "
        "headers: 92.6 % of the line rate instead of 98."
    ),
    fix=(
        "drain the host, as the link may go down for a moment; once the switch and the other "
        "hosts accept such packets: ip link set dev {netdev} mtu 9000"
    ),
    stays=(
        "after reboot: lost; set it in netplan, NetworkManager (802-3-ethernet.mtu) or ifcfg"
        " (MTU=), and on the switch"
    ),
    reads=("/sys/class/net/*/mtu",),
    sources=("InfiniBand Architecture Specification, annex A17 (RoCEv2)",),
)
ERDMA_MTUS = ("8500", "1400")  # with jumbo frames, without


@check(MTU)
def check_mtu(machine: Machine) -> Iterator[Finding]:
    """The interface of each port that collectives use.

    Virtual networks of clouds are not judged, as they have MTUs of their own.
    """
    used = fabric(machine)
    ports = [port for port in used if port.netdev]
    if not ports:
        yield skipped("no RoCE port with an interface here" if used else no_fabric(machine))
    for port in ports:
        path = f"/sys/class/net/{port.netdev}/mtu"
        reading = machine.read(path)
        if not (reading.text or "").isdecimal():
            yield unread(port.name, reading, "the MTU")
            continue
        mtu = int(reading.text or 0)
        yield judged(
            right=mtu >= MIN_MTU,
            subject=port.name,
            good=f"{port.netdev} has MTU {mtu}",
            bad=(
                f"{port.netdev} has MTU {mtu}: RDMA packets carry {1024 if mtu < 2200 else 2048}"
                " bytes, not 4096"
            ),
            evidence=(Evidence(path, str(mtu), f"{MIN_MTU} or more"),),
            fix=filled(MTU.fix, netdev=holder(machine, port)),
        )


MTU_EQUAL = CheckRow(
    id="BW071",
    name="nic-mtu-equal",
    layer=Layer.NIC,
    title="equal MTU on RoCE interfaces",
    right="the same on all rails, and on a bond and its slaves",
    why=(
        "A sender with the larger MTU sends packets that the other end drops"
        " (rx_oversize_pkts_phy), and connections stall."
    ),
    fix="drain the host, as the link may go down for a moment; ip link set dev {netdev} mtu {mtu}",
    stays=(
        "after reboot: lost; set it in netplan, NetworkManager (802-3-ethernet.mtu) or ifcfg"
        " (MTU=), and on the switch"
    ),
    reads=("/sys/class/net/*/mtu",),
    sources=(
        (
            "Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst,"
            " rx_oversize_pkts_phy"
        ),
    ),
)


@check(MTU_EQUAL)
def check_mtu_equal(machine: Machine) -> Iterator[Finding]:
    """A finding for each interface with another MTU than most."""
    ports = [port for port in fabric(machine) if port.netdev]
    names = dict.fromkeys(
        name for port in ports for name in (holder(machine, port), *hardware(machine, port))
    )
    if len(names) < 2:
        yield skipped("fewer than two RoCE interfaces" if names else no_fabric(machine))
        return
    read = {name: machine.text(f"/sys/class/net/{name}/mtu") for name in names}
    values = [mtu for mtu in read.values() if mtu]
    usual = max(values, key=values.count, default="")
    for name, mtu in read.items():
        path = f"/sys/class/net/{name}/mtu"
        if not mtu:
            yield unread(name, machine.read(path), "the MTU")
        elif mtu != usual:
            fix = filled(MTU_EQUAL.fix, netdev=name, mtu=usual)
            yield warned(
                name,
                f"MTU {mtu}, while most RoCE interfaces have {usual}",
                Evidence(path, mtu, usual),
                fix=fix,
            )
    if values and set(values) == {usual} and len(values) == len(read):
        yield passed(
            "",
            f"MTU {usual} on all {len(read)} RoCE interfaces",
            Evidence("/sys/class/net/*/mtu", usual),
        )


ERDMA_MTU = CheckRow(
    id="BW085",
    name="nic-erdma-mtu",
    layer=Layer.NIC,
    title="MTU of eRDMA interfaces",
    right="8500 with jumbo frames, otherwise 1400",
    why=(
        "According to Alibaba Cloud, NCCL's LL128 protocol gives wrong data over eRDMA at any other"
        " MTU."
    ),
    fix=(
        "drain the host, as the link may go down for a moment; ip link set dev {netdev} mtu 8500 "
        "(1400 if jumbo frames are off for the instance)"
    ),
    stays=(
        "after reboot: lost; set it in netplan, NetworkManager (802-3-ethernet.mtu) or ifcfg (MTU=)"
    ),
    reads=("/sys/class/net/*/mtu", "/sys/class/infiniband/*/device/driver"),
    sources=("Alibaba Cloud, Configure eRDMA on a GPU-accelerated instance",),
)


@check(ERDMA_MTU)
def check_erdma_mtu(machine: Machine) -> Iterator[Finding]:
    ports = [port for port in machine.ports if driver(machine, port) == "erdma"]
    if not ports:
        yield skipped("no eRDMA device")
    for port in ports:
        path = f"/sys/class/net/{port.netdev}/mtu"
        reading = machine.read(path)
        if not port.netdev:
            yield not_offered(port.name, "its interface is not in this network namespace")
        elif not reading.text:
            yield unread(port.name, reading, "the MTU")
        else:
            yield judged(
                right=reading.text in ERDMA_MTUS,
                subject=port.name,
                good=f"{port.netdev} has MTU {reading.text}",
                bad=f"{port.netdev} has MTU {reading.text}: NCCL may give wrong data",
                evidence=(Evidence(path, reading.text, " or ".join(ERDMA_MTUS)),),
                fix=filled(ERDMA_MTU.fix, netdev=port.netdev),
                fails=True,
            )
