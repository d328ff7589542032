"""Network cards of one model, compared with each other, and their drivers."""

import re
from collections.abc import Iterator
from functools import cache

import msgspec

from busbw.check.base import check, judged, not_offered, passed, skipped, unanswered, unread, warned
from busbw.check.machine import Machine, RdmaPort
from busbw.check.nic.links import by_model, cabled, hardware, own_ports
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.table_file import rows
from busbw.host.ethtool import driver
from busbw.host.nic import RDMA

LINK_LAYER = CheckRow(
    id="BW065",
    name="nic-link-layer",
    layer=Layer.NIC,
    title="link layer of identical cards",
    right="active ports of cards with the same part number are all InfiniBand or all Ethernet",
    why=(
        "A card that supports both may have been left in the wrong mode. An InfiniBand port cannot"
        " reach an Ethernet port."
    ),
    fix=(
        "leave it if the port is for storage; else drain the host: mlxconfig -d {bdf} set"
        " LINK_TYPE_P{port}={type}; then a cold reboot"
    ),
    stays="permanent, in the card's memory",
    reads=(
        "/sys/class/infiniband/*/ports/*/link_layer",
        "/sys/class/infiniband/*/{board_id,hca_type}",
    ),
    sources=("NVIDIA MFT user manual, mlxconfig, LINK_TYPE_P1",),
)
_RATE = re.compile(r"([\d.]+) Gb/sec \((\d+)X")
LANES = 4
MODULES = "/sys/module"
DRIVER_MODULES = ("mlx5_core", "mlx5_ib")


class Board(msgspec.Struct, frozen=True):
    """The lanes of a port of a card, by PSID."""

    psid: str
    lanes: int


@cache
def boards() -> dict[str, Board]:
    """All cards of the table (check/nic/boards.csv), by PSID."""
    return {row.psid: row for row in rows("check/nic/boards.csv", Board)}


@check(LINK_LAYER)
def check_link_layer(machine: Machine) -> Iterator[Finding]:
    """A finding for each active port, compared with the majority of the same model.

    An even split is taken as intended.
    """
    groups = by_model(machine, [port for port in own_ports(machine) if port.active and port.layer])
    if not any(len(ports) > 1 for ports in groups.values()):
        yield skipped("no two active ports of the same model")
        return
    for kind, ports in groups.items():
        layers = [port.layer for port in ports]
        usual = max(layers, key=layers.count)
        mixed = 2 * layers.count(usual) <= len(ports)
        for port in ports if len(ports) > 1 else ():
            number = 1 if usual == "InfiniBand" else 2
            yield judged(
                right=mixed or port.layer == usual,
                subject=port.name,
                good=(
                    f"{port.layer}, like {layers.count(port.layer)} of {len(ports)} ports of this"
                    f" model ({kind})"
                ),
                bad=f"{port.layer}, while most ports of this model ({kind}) are {usual}",
                evidence=(Evidence(f"{port.path}/link_layer", port.layer, usual),),
                fix=filled(
                    LINK_LAYER.fix, bdf=port.bdf or port.device, port=port.number, type=number
                ),
            )


RATE = CheckRow(
    id="BW066",
    name="nic-rate",
    layer=Layer.NIC,
    title="rate of RDMA ports",
    right="the same rate on all active ports of the same model, with all lanes of the card",
    why=(
        "A port that lost lanes or speed carries half or less. The slowest port sets the pace of a"
        " collective over all rails."
    ),
    fix=(
        "mlxlink -d {device} -m shows cable and lanes; drain the host; reseat or replace the cable"
        " of {device}"
    ),
    stays=(
        "a cable is permanent; a speed that was forced with ethtool or on the switch must be"
        " cleared there"
    ),
    reads=("/sys/class/infiniband/*/ports/*/rate", "/sys/class/infiniband/*/{board_id,hca_type}"),
    sources=("Linux Documentation/ABI/stable/sysfs-class-infiniband",),
)


@check(RATE)
def check_rate(machine: Machine) -> Iterator[Finding]:
    """A finding for each active port with a cable, compared with the fastest of the same model.

    The rate of a port that is down means nothing.
    """
    ports = [port for port in cabled(machine) if port.active]
    if not ports:
        yield skipped("no active RDMA port with a cable")
    groups = by_model(machine, ports).values()
    for port in ports:
        group = next((group for group in groups if port in group), [])
        alike = [other for other in group if other.layer == port.layer]
        yield _judge_rate(machine, port, alike)


def _judge_rate(machine: Machine, port: RdmaPort, alike: list[RdmaPort]) -> Finding:
    """The finding on a port; `alike` are the ports of its model and link layer, with itself."""
    reading = machine.read(f"{port.path}/rate")
    rate = _parse_rate(reading.text)
    if rate is None:
        noun = f"the rate ('{reading.text}')" if reading.text else "the rate"
        return unread(port.name, reading, noun)
    readable = [_parse_rate(machine.text(f"{other.path}/rate")) for other in alike]
    rates = [other_rate for other_rate in readable if other_rate is not None]
    fastest = max(rates, default=rate)
    gbits, lanes = rate
    expected = f"{fastest[0]:g} Gb/sec" if fastest > rate else "4X"
    evidence = Evidence(f"{port.path}/rate", reading.text or "", expected)
    if rate < fastest:
        message = (
            f"{gbits:g} Gbit/s over {lanes} lanes, while ports of the same model have"
            f" {fastest[0]:g} over {fastest[1]}"
        )
        fix = filled(RATE.fix, device=port.device)
        return warned(port.name, message, evidence, fix=fix, weight=fastest[0] - gbits)
    if lanes < LANES:
        return _judge_lanes(machine, port, rate, len(rates), evidence)
    return passed(port.name, f"{gbits:g} Gbit/s", evidence)


def _judge_lanes(
    machine: Machine, port: RdmaPort, rate: tuple[float, int], alike: int, evidence: Evidence
) -> Finding:
    """The finding on a port with few lanes, though none of the `alike` ports of its model has more.

    An InfiniBand link comes up with the lanes that work; Ethernet needs all that it is set to.
    """
    gbits, lanes = rate
    text = f"{gbits:g} Gbit/s over {lanes} lanes"
    board = machine.text(f"{RDMA}/{port.device}/board_id") or ""
    known = boards().get(board)
    of_card = known.lanes if known else 0
    if lanes < of_card and port.layer == "InfiniBand":
        message = (
            f"{text}, while a port of this card ({board}) has {of_card}, unless the cable is split"
        )
        return warned(port.name, message, evidence, fix=filled(RATE.fix, device=port.device))
    if lanes == of_card:
        return passed(
            port.name, f"{text}, which are all that a port of this card ({board}) has", evidence
        )
    if alike > 1 and port.layer != "InfiniBand":
        return passed(port.name, f"{text}, like all of the same model", evidence)
    message = f"{text}: normal for NDR200, an SFP port or a split cable, otherwise degraded"
    return not_offered(port.name, message, evidence)


def _parse_rate(text: str | None) -> tuple[float, int] | None:
    """Gbit/s and number of lanes of `400 Gb/sec (4X NDR)`."""
    match = _RATE.match(text or "")
    return (float(match.group(1)), int(match.group(2))) if match else None


FIRMWARE = CheckRow(
    id="BW067",
    name="nic-firmware",
    layer=Layer.NIC,
    title="firmware of identical network cards",
    right="cards with the same part number have the same firmware",
    why=(
        "Cards with different firmware differ in congestion control and defaults. The usual cause"
        " is a replaced card."
    ),
    fix=(
        "mlxfwmanager -d {bdf} --query; drain the host; update it (mlxfwmanager or mstflint), then"
        " mlxfwreset -d {bdf} reset (or reboot)"
    ),
    stays="permanent, in the card's memory",
    reads=("/sys/class/infiniband/*/{fw_ver,board_id,hca_type}",),
    sources=("Linux Documentation/ABI/stable/sysfs-class-infiniband",),
)


@check(FIRMWARE)
def check_firmware(machine: Machine) -> Iterator[Finding]:
    """A finding for each device, compared with most cards of the same model."""
    ports = [port for port in cabled(machine) if port.number == "1"]
    if not ports:
        yield skipped("no RDMA device with firmware of its own")
    groups = by_model(machine, ports)
    for port in ports:
        path = f"{RDMA}/{port.device}/fw_ver"
        firmware = machine.text(path)
        if not firmware:
            yield unread(port.device, machine.read(path), "its firmware")
            continue
        kind, alike = "", [port]
        for model, group in groups.items():
            if port in group:
                kind, alike = model, group
        versions = [machine.text(f"{RDMA}/{other.device}/fw_ver") or "" for other in alike]
        usual = max(versions, key=versions.count)
        text = f"firmware {firmware}"
        if len(set(versions)) == 1 and len(alike) > 1:
            text += f", same as all {len(alike)} of {kind}"
        yield judged(
            right=firmware == usual,
            subject=port.device,
            good=text,
            bad=f"firmware {firmware}, while most cards of the same model ({kind}) have {usual}",
            evidence=(Evidence(path, firmware, usual if len(alike) > 1 else ""),),
            fix=filled(FIRMWARE.fix, bdf=port.bdf or port.device),
        )


DRIVER = CheckRow(
    id="BW068",
    name="nic-driver",
    layer=Layer.NIC,
    title="drivers of the network cards",
    right="the Ethernet and the RDMA part of the driver come from the same release",
    why=(
        "A kernel update or a partial installation can leave one module from the kernel and one "
        "from DOCA-OFED. They may not work together."
    ),
    fix=(
        "drain the host; reinstall DOCA-OFED for kernel {kernel}, or remove it; then reboot (or, "
        "as its RDMA ports and their interfaces go down, from the console: /etc/init.d/openibd "
        "restart)"
    ),
    stays="until the next kernel update, unless the modules are rebuilt by DKMS",
    reads=("ethtool -i", "/sys/module/{mlx5_core,mlx5_ib}/version"),
    sources=("Linux Documentation/ABI/stable/sysfs-module",),
)


@check(DRIVER)
def check_driver(machine: Machine) -> Iterator[Finding]:
    """A finding for each interface of an RDMA port.

    The kernel's own modules have no version; those of DOCA-OFED have one.
    """
    ports = cabled(machine)
    named = [(port, netdev) for port in ports for netdev in hardware(machine, port)]
    if not named:
        yield skipped("no RDMA port with an interface here" if ports else "no RDMA port")
    for port, netdev in named:
        netdev_driver = driver(machine, netdev)
        if isinstance(netdev_driver, str):
            yield unanswered(
                port.name, f"the driver of {netdev} cannot be read: {netdev_driver}", netdev_driver
            )
            continue
        values = {
            "driver": netdev_driver.name,
            "version": netdev_driver.version,
            "firmware": netdev_driver.firmware,
            "bus": netdev_driver.bus,
        }
        evidence = [
            Evidence(f"ethtool -i {netdev}: {name}", value)
            for name, value in values.items()
            if value
        ]
        texts = {half: machine.text(f"{MODULES}/{half}/version") or "" for half in DRIVER_MODULES}
        if netdev_driver.name == "mlx5_core" and len(set(texts.values())) > 1:
            evidence += [
                Evidence(f"{MODULES}/{half}/version", text or "none (kernel's own)")
                for half, text in texts.items()
            ]
            fix = filled(DRIVER.fix, kernel=machine.host.kernel or "KERNEL")
            yield warned(
                port.name, "mlx5_core and mlx5_ib come from different releases", *evidence, fix=fix
            )
        else:
            yield passed(
                port.name,
                f"{netdev}: {netdev_driver.name} {netdev_driver.version}".rstrip(),
                *evidence,
            )
