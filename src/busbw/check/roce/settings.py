"""What checks of RoCE share: the settings of each hardware interface, and how they stay."""

from dataclasses import dataclass

from busbw.check.machine import Machine, Port
from busbw.check.nic.links import driver, hardware, roce
from busbw.host.dcb import PRIORITIES
from busbw.host.roce_qos import NCCL_CONF, Qos, nccl_traffic_class, parse_traffic_class, read_qos, traffic_class_path

STAYS = (
    "lost at the next reboot: run it from a systemd unit after the driver is loaded, from a udev rule for the interface, "
    "or set it with the NIC Configuration Operator of Kubernetes"
)
OFED = "only NVIDIA's driver (DOCA-OFED) has these files"


@dataclass(frozen=True, slots=True)
class Setting:
    """One hardware interface of a RoCE port."""

    subject: str
    port: Port
    qos: Qos


def settings(machine: Machine) -> tuple[Setting, ...]:
    """All of them. A bond has one for each slave."""
    found = []
    for port in roce(machine):
        names = hardware(machine, port)
        for netdev in names:
            subject = f"{port.name} {netdev}" if len(names) > 1 else port.name
            found.append(Setting(subject, port, read_qos(machine, netdev)))
    return tuple(found)


def absent(machine: Machine) -> str:
    """Why there are no settings."""
    return "no RoCE port with an interface here" if roce(machine) else "no RoCE port"


def hidden(machine: Machine, reason: str) -> str:
    """The reason why a setting cannot be read, with what a virtual machine adds."""
    return f"{reason}; the host of this virtual machine sets it" if machine.hypervisor else reason


def sent_class(machine: Machine, port: Port) -> tuple[int | None, str]:
    """The traffic class of NCCL's packets and where it is set; None if it is not known.

    The driver's value for all packets takes precedence over NCCL_IB_TC.
    """
    path = traffic_class_path(port.device, port.number)
    forced = parse_traffic_class(machine.text(path) or "")
    return nccl_traffic_class(machine.environment, machine.text(NCCL_CONF) or "") if forced is None else (forced, path)


def nvidia(machine: Machine, port: Port) -> bool:
    """Whether mlnx_qos sets this port; iproute2's dcb sets all others."""
    return driver(machine, port) == "mlx5_core"


def mask(priorities: tuple[int, ...]) -> str:
    """`0,0,0,1,0,0,0,0`, as mlnx_qos takes it."""
    return ",".join("1" if priority in priorities else "0" for priority in range(PRIORITIES))


def listed(priorities: tuple[int, ...] | None) -> str:
    """`3, 4`, or `none`."""
    return ", ".join(map(str, priorities or ())) or "none"
