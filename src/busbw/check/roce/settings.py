"""What the RoCE checks share: the settings of each interface, and what makes them permanent."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps

from busbw.check.base import Check, check, skipped
from busbw.check.machine import Machine, RdmaPort
from busbw.check.nccl import settings as nccl
from busbw.check.nic.links import driver, fabric, hardware, no_fabric, tagged
from busbw.check.types import Finding
from busbw.core.finding import CheckRow
from busbw.core.sizes import parse_int
from busbw.host.dcb import PRIORITIES, Dcb
from busbw.host.roce_qos import Qos, parse_traffic_class, rdma_cm_path, read_qos, traffic_class_path
from busbw.host.source import once

STAYS_AFTER_REBOOT = (
    "after reboot: lost; run it from a systemd unit after the driver is loaded, from a udev "
    "rule for the interface, or set it with the NIC Configuration Operator (Kubernetes)"
)
NCCL_TC, MAX_TRAFFIC_CLASS = "NCCL_IB_TC", 255
OFED = "only NVIDIA's driver (DOCA-OFED) has these files"


@dataclass(frozen=True, slots=True)
class RoceInterface:
    """One hardware interface of a RoCE port."""

    subject: str
    port: RdmaPort
    qos: Qos


@once
def settings(machine: Machine) -> tuple[RoceInterface, ...]:
    """The settings of the ports that collectives use. A bond has one for each slave."""
    interfaces = []
    for port in fabric(machine):
        names = hardware(machine, port)
        for netdev in names:
            subject = f"{port.name} {netdev}" if len(names) > 1 else port.name
            interfaces.append(
                RoceInterface(
                    subject, port, read_qos(machine, netdev, tagged=tagged(machine, port.netdev))
                )
            )
    return tuple(interfaces)


def per_interface(row: CheckRow) -> Callable[[Callable[[Machine, RoceInterface], Finding]], Check]:
    """Makes a function that judges an interface of a RoCE port the check of `row`."""

    def register(judge: Callable[[Machine, RoceInterface], Finding]) -> Check:
        @check(row)
        @wraps(judge)
        def judge_all(machine: Machine) -> Iterator[Finding]:
            interfaces = settings(machine)
            if not interfaces:
                yield skipped(absent(machine))
            for setting in interfaces:
                yield judge(machine, setting)

        return judge_all

    return register


def absent(machine: Machine) -> str:
    return "no RoCE port with an interface here" if fabric(machine) else no_fabric(machine)


def hidden(machine: Machine, reason: str) -> str:
    """Why a setting cannot be read; a virtual machine adds a reason."""
    return f"{reason}; the host of this virtual machine sets it" if machine.hypervisor else reason


def sent_class(machine: Machine, port: RdmaPort) -> tuple[int | None, str]:
    """The traffic class of NCCL's packets and where it is set; None if it is not known.

    The driver's value for all packets takes precedence over NCCL_IB_TC.
    """
    path = traffic_class_path(port.device, port.number)
    forced = parse_traffic_class(machine.text(path) or "")
    if forced is not None:
        return forced, path
    if machine.environment is None:
        return None, f"${NCCL_TC}"
    setting = nccl.settings(machine).get(NCCL_TC)
    if setting is None:
        return 0, f"${NCCL_TC}, which is not set"
    value = parse_int(setting.value)
    return (value if 0 <= value <= MAX_TRAFFIC_CLASS else None), setting.evidence().where


def values(machine: Machine, setting: RoceInterface) -> dict[str, str]:
    """All settings as text, which should be equal on all ports of a fabric.

    '' if one cannot be read.
    """
    qos, port = setting.qos, setting.port
    dcb = qos.dcb if isinstance(qos.dcb, Dcb) else Dcb()
    return {
        "trust mode": qos.trust,
        "flow control": "" if dcb.pfc is None else listed(dcb.pfc),
        "DSCP map": _ranges(dcb.dscp),
        "traffic classes": ", ".join(map(str, dcb.classes)),
        "bandwidth shares": ", ".join(map(str, dcb.shares)),
        "notification point": "" if qos.notify is None else listed(qos.notify),
        "reaction point": "" if qos.react is None else listed(qos.react),
        "DSCP of CNPs": qos.cnp or "",
        "traffic class": machine.text(traffic_class_path(port.device, port.number)) or "",
        "RDMA-CM type of service": (
            machine.text(rdma_cm_path(port.device, port.number, "default_roce_tos")) or ""
        ),
    }


def _ranges(dscp: Mapping[int, int]) -> str:
    """`0-7: 0, 26: 3`: the priority of each DSCP, as ranges."""
    runs: list[tuple[int, int, int]] = []  # first, last, priority
    for value, priority in sorted(dscp.items()):
        if runs and runs[-1][1:] == (value - 1, priority):
            runs[-1] = (runs[-1][0], value, priority)
        else:
            runs.append((value, value, priority))
    texts = []
    for first, last, priority in runs:
        values = f"{first}-{last}" if last > first else str(first)
        texts.append(f"{values}: {priority}")
    return ", ".join(texts)


def nvidia(machine: Machine, port: RdmaPort) -> bool:
    """Whether mlnx_qos configures this port; iproute2's dcb configures all others."""
    return driver(machine, port) == "mlx5_core"


def mask(priorities: tuple[int, ...]) -> str:
    """`0,0,0,1,0,0,0,0`, as mlnx_qos takes it."""
    return ",".join("1" if priority in priorities else "0" for priority in range(PRIORITIES))


def listed(priorities: tuple[int, ...] | None) -> str:
    """`3, 4`, or `none`."""
    return ", ".join(map(str, priorities or ())) or "none"
