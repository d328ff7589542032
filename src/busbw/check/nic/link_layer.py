"""Whether ports of the same model have the same link layer."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, skipped
from busbw.check.machine import Machine
from busbw.check.nic.links import kinds, own
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

ROW = CheckRow(
    id="BW065",
    name="nic-link-layer",
    layer=Layer.NIC,
    title="link layer of identical cards",
    right="active ports of cards with the same part number are all InfiniBand or all Ethernet",
    why="A card that supports both may have been left in the wrong mode. An InfiniBand port cannot reach an Ethernet port.",
    fix="leave it if the port is for storage; else drain the host: mlxconfig -d {bdf} set LINK_TYPE_P{port}={type}; then a cold reboot",
    stays="permanent, in the card's memory",
    reads=("/sys/class/infiniband/*/ports/*/link_layer", "/sys/class/infiniband/*/{board_id,hca_type}"),
    sources=("NVIDIA MFT user manual, mlxconfig, LINK_TYPE_P1",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each active port, compared with the majority of the same model. An even split is taken as intended."""
    groups = kinds(machine, [port for port in own(machine) if port.active and port.layer])
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
                good=f"{port.layer}, like {layers.count(port.layer)} of {len(ports)} ports of this model ({kind})",
                bad=f"{port.layer}, while most ports of this model ({kind}) are {usual}",
                evidence=(Evidence(f"{port.path}/link_layer", port.layer, usual),),
                fix=filled(ROW.fix, bdf=port.bdf or port.device, port=port.number, type=number),
            )


CHECK = Check(ROW, look)
