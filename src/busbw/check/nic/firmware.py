"""Firmware of the network cards."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, skipped, unread
from busbw.check.machine import Machine
from busbw.check.nic.links import cabled, kinds
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.nic import RDMA

ROW = CheckRow(
    id="BW067",
    name="nic-firmware",
    layer=Layer.NIC,
    title="firmware of identical network cards",
    right="cards with the same part number have the same firmware",
    why="Cards with different firmware differ in congestion control and defaults. The usual cause is a replaced card.",
    fix="mlxfwmanager -d {bdf} --query; drain the host; update it (mlxfwmanager or mstflint), then mlxfwreset -d {bdf} reset (or reboot)",
    stays="permanent, in the card's memory",
    reads=("/sys/class/infiniband/*/{fw_ver,board_id,hca_type}",),
    sources=("Linux Documentation/ABI/stable/sysfs-class-infiniband",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each device, compared with most cards of the same model."""
    ports = [port for port in cabled(machine) if port.number == "1"]
    if not ports:
        yield skipped("no RDMA device with firmware of its own")
    groups = kinds(machine, ports)
    for port in ports:
        kind, likes = next(((kind, likes) for kind, likes in groups.items() if port in likes), ("", [port]))
        path = f"{RDMA}/{port.device}/fw_ver"
        own = machine.text(path)
        if not own:
            yield unread(port.device, machine.read(path), "its firmware")
            continue
        versions = [machine.text(f"{RDMA}/{like.device}/fw_ver") or "" for like in likes]
        usual = max(versions, key=versions.count)
        yield judged(
            right=own == usual,
            subject=port.device,
            good=f"firmware {own}" + (f", same as all {len(likes)} of {kind}" if len(set(versions)) == 1 and len(likes) > 1 else ""),
            bad=f"firmware {own}, while most cards of the same model ({kind}) have {usual}",
            evidence=(Evidence(path, own, usual if len(likes) > 1 else ""),),
            fix=filled(ROW.fix, bdf=port.bdf or port.device),
        )


CHECK = Check(ROW, look)
