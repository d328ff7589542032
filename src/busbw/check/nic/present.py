"""Whether each network card has an RDMA device."""

from collections.abc import Iterator
from pathlib import Path

from busbw.check.base import Check, failed, passed, skipped, unknown
from busbw.check.machine import Machine
from busbw.core.checking import CheckRow, Evidence, Found, Layer
from busbw.host.nic import RDMA
from busbw.host.source import Source

PCI = "/sys/bus/pci/devices"
NETWORK = "0x02"  # PCI class
MODULES = {"0x15b3": ("mlx5_core", "mlx5_ib"), "0x14e4": ("bnxt_en", "bnxt_re"), "0x1d0f": ("efa", "efa"), "0x1ded": ("erdma", "erdma")}
BROADCOM, AMAZON, ALIBABA = "0x14e4", "0x1d0f", "0x1ded"

ROW = CheckRow(
    id="BW060",
    name="nic-present",
    layer=Layer.NIC,
    title="RDMA devices of the network cards",
    right="each card of NVIDIA, Broadcom, Amazon EFA or Alibaba eRDMA on PCI has an RDMA device",
    why="Without its RDMA driver NCCL does not see the card. It goes on with the others, or falls back to TCP.",
    fix="modprobe {module}",
    stays="lost at the next reboot; name the module in /etc/modules-load.d/rdma.conf",
    reads=("/sys/bus/pci/devices/*/{vendor,device,class,driver,physfn}", "/sys/class/infiniband/*/device", "/proc/modules"),
    sources=("Linux drivers/infiniband/hw/{mlx5,bnxt_re,efa,erdma}",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each PCI function that can have an RDMA device."""
    devices = {Path(machine.link(f"{RDMA}/{name}/device") or "").name: name for name in machine.names(RDMA)}
    cards = {bdf: vendor for bdf in machine.names(PCI) if (vendor := _vendor(machine, bdf, any_rdma=bool(devices)))}
    if not cards:
        if machine.names(PCI):
            yield skipped("no network card with RDMA on PCI")
        else:
            yield unknown("", f"{PCI} cannot be read")
    for bdf, vendor in cards.items():
        yield _judge(machine, bdf, vendor, devices)


def _vendor(machine: Source, bdf: str, *, any_rdma: bool) -> str:
    """The vendor of a function that should have an RDMA device, else ''. Virtual functions without a driver are for guests."""
    vendor, device, kind = (machine.read(f"{PCI}/{bdf}/{name}").text or "" for name in ("vendor", "device", "class"))
    bound = Path(machine.link(f"{PCI}/{bdf}/driver") or "").name
    guest = bound.startswith("vfio") or (not bound and machine.link(f"{PCI}/{bdf}/physfn") is not None)
    cloud = (vendor == AMAZON and device.startswith("0xefa")) or (vendor == ALIBABA and device in ("0x107f", "0x5007"))
    other = vendor in MODULES and vendor not in (AMAZON, ALIBABA) and kind.startswith(NETWORK)
    # Many servers have a Broadcom port for management alone, with RDMA off.
    management = vendor == BROADCOM and any_rdma
    return vendor if (cloud or other) and not guest and not management else ""


def _judge(machine: Machine, bdf: str, vendor: str, devices: dict[str, str]) -> Found:
    path = f"{PCI}/{bdf}/driver"
    bound = Path(machine.link(path) or "").name
    ethernet, rdma = MODULES[vendor]
    card = bdf.rpartition(".")[0]
    shared = next((name for address, name in devices.items() if address.rpartition(".")[0] == card and "bond" in name), "")
    evidence = Evidence(f"{RDMA}/*/device", devices.get(bdf, shared) or "none is this function's", "an RDMA device")
    if bdf in devices or shared:
        return passed(bdf, f"it is {devices.get(bdf, shared)}", evidence)
    if machine.container:
        return unknown(bdf, "this is a container, which may not show its RDMA device", evidence)
    if not bound:
        return failed(bdf, "it has no driver", evidence, Evidence(path, "no driver", ethernet), fix=f"modprobe {ethernet}")
    if rdma not in machine.modules:
        return failed(bdf, f"{rdma} is not loaded", evidence, Evidence("/proc/modules", f"no {rdma}", rdma), fix=f"modprobe {rdma}")
    return failed(bdf, f"{rdma} is loaded, but made no RDMA device", evidence, fix=f"dmesg | grep -e {bdf} -e {rdma} shows why")


CHECK = Check(ROW, look)
