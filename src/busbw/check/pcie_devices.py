"""The GPUs and network controllers of a machine, with the names that findings use."""

from dataclasses import dataclass

from busbw.check.machine import Machine
from busbw.host.nvml_health import read_health
from busbw.host.pci import Device, at, read_devices

NONE = "no NVIDIA GPU and no network controller on PCI"


WITH_CPU = ("NVIDIA GH", "NVIDIA GB")  # models connected to their CPU by NVLink-C2C


@dataclass(frozen=True, slots=True)
class Part:
    """A device with its name: GPU 2, mlx5_0, eth0, or its address if it has none."""

    name: str
    device: Device

    @property
    def path(self) -> str:
        """Its directory."""
        return at(self.device.bdf)


def gpus(machine: Machine) -> list[Part]:
    """NVIDIA GPUs, by NVML's labels where it lists them."""
    names = {gpu.bus_id: gpu.label for gpu in read_health(machine).gpus}
    return [
        Part(names.get(bdf, bdf), device)
        for bdf, device in read_devices(machine).items()
        if device.gpu
    ]


def with_cpu(machine: Machine, part: Part) -> str:
    """The model of a GPU connected to its CPU by NVLink-C2C instead of PCIe; '' for other parts."""
    models = (gpu.name for gpu in read_health(machine).gpus if gpu.bus_id == part.device.bdf)
    return next((model for model in models if model.startswith(WITH_CPU)), "")


def nics(machine: Machine) -> list[Part]:
    """RDMA devices except virtual functions; without RDMA all network controllers."""
    rdma = {port.bdf: port.device for port in machine.ports}
    real = {bdf: device for bdf, device in read_devices(machine).items() if not device.virtual}
    found = [Part(rdma[bdf], device) for bdf, device in real.items() if bdf in rdma]
    return found or [
        Part(_interface(machine, bdf), device) for bdf, device in real.items() if device.network
    ]


def rdma_nics(machine: Machine) -> list[Part]:
    """Only RDMA devices."""
    names = {port.device for port in machine.ports}
    return [nic for nic in nics(machine) if nic.name in names]


def _interface(machine: Machine, bdf: str) -> str:
    return next(iter(machine.names(f"{at(bdf)}/net")), bdf)


def slots(parts: list[Part]) -> list[Part]:
    """One part per slot: functions of a slot share its link."""
    return list({part.device.slot: part for part in reversed(parts)}.values())[::-1]
