"""What checks of RoCE share: the settings of each hardware interface, and how they stay."""

from dataclasses import dataclass

from busbw.check.machine import Machine, Port
from busbw.check.nccl import settings as nccl
from busbw.check.nic.links import driver, fabric, hardware, no_fabric, tagged
from busbw.core.sizes import parse_int
from busbw.host.dcb import PRIORITIES
from busbw.host.roce_qos import Qos, parse_traffic_class, read_qos, traffic_class_path

STAYS = (
    "lost at the next reboot: run it from a systemd unit after the driver is loaded, from a udev rule for the interface, "
    "or set it with the NIC Configuration Operator of Kubernetes"
)
NCCL_TC, MOST_TC = "NCCL_IB_TC", 255
OFED = "only NVIDIA's driver (DOCA-OFED) has these files"


@dataclass(frozen=True, slots=True)
class Setting:
    """One hardware interface of a RoCE port."""

    subject: str
    port: Port
    qos: Qos


def settings(machine: Machine) -> tuple[Setting, ...]:
    """Those of the ports that collectives use. A bond has one for each slave."""
    found = []
    for port in fabric(machine):
        names = hardware(machine, port)
        for netdev in names:
            subject = f"{port.name} {netdev}" if len(names) > 1 else port.name
            found.append(Setting(subject, port, read_qos(machine, netdev, tagged=tagged(machine, port.netdev))))
    return tuple(found)


def absent(machine: Machine) -> str:
    """Why there are no settings."""
    return "no RoCE port with an interface here" if fabric(machine) else no_fabric(machine)


def hidden(machine: Machine, reason: str) -> str:
    """The reason why a setting cannot be read, with what a virtual machine adds."""
    return f"{reason}; the host of this virtual machine sets it" if machine.hypervisor else reason


def sent_class(machine: Machine, port: Port) -> tuple[int | None, str]:
    """The traffic class of NCCL's packets and where it is set; None if it is not known.

    The driver's value for all packets takes precedence over NCCL_IB_TC.
    """
    path = traffic_class_path(port.device, port.number)
    forced = parse_traffic_class(machine.text(path) or "")
    if forced is not None:
        return forced, path
    every = nccl.settings(machine)
    setting = (every or {}).get(NCCL_TC)
    if setting is None:
        return (None, f"${NCCL_TC}") if every is None else (0, f"${NCCL_TC}, which is not set")
    value = parse_int(setting.value)
    return (value if 0 <= value <= MOST_TC else None), setting.evidence().where


def nvidia(machine: Machine, port: Port) -> bool:
    """Whether mlnx_qos sets this port; iproute2's dcb sets all others."""
    return driver(machine, port) == "mlx5_core"


def mask(priorities: tuple[int, ...]) -> str:
    """`0,0,0,1,0,0,0,0`, as mlnx_qos takes it."""
    return ",".join("1" if priority in priorities else "0" for priority in range(PRIORITIES))


def listed(priorities: tuple[int, ...] | None) -> str:
    """`3, 4`, or `none`."""
    return ", ".join(map(str, priorities or ())) or "none"
