"""Packets that ports dropped."""

from collections.abc import Iterator, Sequence

from busbw.check.base import Check, not_offered, passed, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import LOSS, each_port, evidence, total
from busbw.check.rates import LOADED, Count, window
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer

DROPPED = "[rt]x_discards_phy|port_xmit_discards"
PACKETS = "[rt]x_packets_phy|port_xmit_packets|port_rcv_packets"
SIZE = "rx_oversize_pkts_phy"
OF_INFINIBAND = (
    "ibdiagnet names the congested switch port; the log of the subnet manager shows whether a host hung; as root, which sets the "
    "counters to 0: perfquery -C {device} -P {port} -R"
)

ROW = CheckRow(
    id="BW079",
    name="nic-discards",
    layer=Layer.NIC,
    title="packets that ports dropped",
    right=f"at most {LOSS:g} of the packets, and none for their size, between two readings (--watch-for, --since) or since the driver "
    "was loaded",
    why="RDMA retransmits a lost packet and every packet after it. Received packets are dropped if their class has no flow control, or "
    "if they are larger than the MTU.",
    fix="enable flow control for the RDMA priority, on the switch too: mlnx_qos -i {netdev} --pfc 0,0,0,1,0,0,0,0; for oversize packets, "
    "set the same MTU at both ends",
    stays="lost at the next reboot; a systemd unit or the NIC Configuration Operator keeps it; the counters restart when the driver is "
    "loaded",
    reads=("ethtool -S: rx_discards_phy, tx_discards_phy, rx_packets_phy, tx_packets_phy, rx_oversize_pkts_phy",
           "/sys/class/infiniband/*/ports/*/counters/{port_xmit_discards,port_xmit_packets,port_rcv_packets}"),
    sources=("Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",),
)  # fmt: skip


def look(machine: Machine) -> Iterator[Found]:
    """Each port with a cable."""
    files = ("counters/port_xmit_discards", "counters/port_xmit_packets", "counters/port_rcv_packets")
    yield from each_port(machine, files, f"{DROPPED}|{PACKETS}|{SIZE}", lambda port, found: _judge(machine, port, found))


def _judge(machine: Machine, port: Port, found: list[Count]) -> Found:
    if not any(count.name.startswith(("rx_discards", "tx_discards", "port_xmit_discards")) for count in found):
        return not_offered(port.name, "its driver does not count dropped packets")
    recent = window(machine, found)
    values, since = (recent.counts, recent.since) if _packets(recent.counts) else (tuple(found), LOADED)  # an idle port tells nothing new
    dropped, large, packets = total(values, DROPPED), total(values, SIZE), _packets(values)
    seen = evidence(found, f"{DROPPED}|{SIZE}")
    full = next((count for count in found if count.saturated), None)
    message = f"{dropped} of {packets} packets dropped {since}" + (f", {large} that are larger than its MTU" if large else "")
    message += f"; {full.name} is at the most that it can hold, and later drops are not counted" if full else ""
    if large or full or dropped > LOSS * packets:
        fix = (
            filled(ROW.fix, netdev=port.netdev or "INTERFACE") if port.roce else filled(OF_INFINIBAND, device=port.device, port=port.number)
        )
        return warned(port.name, message, *seen, fix=fix, weight=dropped + large)
    return passed(port.name, message, *seen)


def _packets(found: Sequence[Count]) -> int:
    """The files of the port and the statistics of its interface count the same packets."""
    return max(total(found, "[rt]x_packets_phy"), total(found, "port_xmit_packets|port_rcv_packets"))


CHECK = Check(ROW, look)
