"""Quality of service of RoCE: which priority packets get, and what that priority has.

From sysfs, configfs and DCB.

The files qos/trust, ecn/ and tc/ are those of NVIDIA's own driver (DOCA-OFED, MLNX_OFED); the
kernel's driver has DCB alone.
"""

import re
from dataclasses import dataclass

from busbw.host.dcb import PRIORITIES, Dcb, read_dcb
from busbw.host.interfaces import NET
from busbw.host.nic import RDMA
from busbw.host.source import Source

CONFIGFS = "/sys/kernel/config/rdma_cm"
_GLOBAL = re.compile(r"Global tclass=(\d+)")
ECN_BITS = {0: "no ECN", 1: "ECT(1)", 2: "ECT(0)", 3: "CE"}


@dataclass(frozen=True, slots=True)
class Qos:
    """The settings of one interface.

    `trust` is '' and the rest None where they cannot be read; `dcb` may be the reason.
    """

    netdev: str
    trust: str  # dscp or pcp
    trust_where: str
    dcb: Dcb | str
    # priorities on which it answers ECN marks with CNPs (notification point)
    notify: tuple[int, ...] | None
    react: tuple[int, ...] | None  # priorities on which it slows down for CNPs (reaction point)
    cnp: str | None  # DSCP of CNPs
    tagged: bool = False  # its packets have a VLAN tag with a priority

    @property
    def lossless(self) -> tuple[int, ...] | None:
        """Priorities with priority flow control."""
        return None if isinstance(self.dcb, str) else self.dcb.pfc

    def priority(self, traffic_class: int) -> int | None:
        """The priority of packets with this traffic class byte; None if it is not known.

        Untagged packets have 0 where PCP is trusted.
        """
        if self.trust == "pcp":
            return None if self.tagged else 0
        return None if isinstance(self.dcb, str) else self.dcb.dscp.get(traffic_class >> 2)


def read_qos(source: Source, netdev: str, *, tagged: bool = False) -> Qos:
    """The settings of a hardware interface; `tagged`: a VLAN lies over it."""
    dcb = read_dcb(source, netdev)
    where = f"{NET}/{netdev}/qos/trust"
    trust = source.read(where).text or ""
    if not trust and isinstance(dcb, Dcb):
        where, trust = f"dcb {netdev}", dcb.trust[0] if dcb.trust else "dscp" if dcb.dscp else "pcp"
    ecn = f"{NET}/{netdev}/ecn"
    return Qos(
        netdev=netdev,
        trust=trust,
        trust_where=where,
        dcb=dcb,
        notify=_enabled(source, f"{ecn}/roce_np/enable"),
        react=_enabled(source, f"{ecn}/roce_rp/enable"),
        cnp=source.read(f"{ecn}/roce_np/cnp_dscp").text,
        tagged=tagged,
    )


def _enabled(source: Source, folder: str) -> tuple[int, ...] | None:
    read = {priority: source.read(f"{folder}/{priority}").text for priority in range(PRIORITIES)}
    return (
        None
        if None in read.values()
        else tuple(priority for priority, text in read.items() if text == "1")
    )


def traffic_class_path(device: str, port: str) -> str:
    """The file with the traffic class that the driver gives all RDMA packets of a port."""
    return f"{RDMA}/{device}/tc/{port}/traffic_class"


def parse_traffic_class(text: str) -> int | None:
    """The traffic class of all packets, 0 - 255; None if applications choose it themselves."""
    match = _GLOBAL.match(text)
    return int(match.group(1)) if match else None


def rdma_cm_path(device: str, port: str, name: str) -> str:
    """A file of RDMA-CM's defaults in configfs.

    It exists after somebody made the directory of the device.
    """
    return f"{CONFIGFS}/{device}/ports/{port}/{name}"


def decoded(traffic_class: int) -> str:
    """`106 (DSCP 26, ECT(0))`."""
    return f"{traffic_class} (DSCP {traffic_class >> 2}, {ECN_BITS[traffic_class & 3]})"
