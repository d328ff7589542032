"""Whether each network card has an RDMA device."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, not_offered, passed, skipped, warned
from busbw.check.machine import Machine
from busbw.check.nic.links import gpu_server
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.nic import RDMA
from busbw.host.pci import ETHERNET, NETWORK

PCI = "/sys/bus/pci/devices"
MODULES = {"0x15b3": ("mlx5_core", "mlx5_ib"), "0x14e4": ("bnxt_en", "bnxt_re"), "0x1d0f": ("efa", "efa"), "0x1ded": ("erdma", "erdma")}
THOR = ("0x1750", "0x1751", "0x1752", "0x1760")  # cards of 100 to 400 Gbit/s, which should have RDMA
NVIDIA, BROADCOM, AMAZON, ALIBABA = MODULES
GONE = b"\xff" * 16  # read from a card that does not respond; of a virtual function only the first 4 bytes are so

ROW = CheckRow(
    id="BW060",
    name="nic-present",
    layer=Layer.NIC,
    title="RDMA devices of the network cards",
    right="each NVIDIA, Amazon EFA or Alibaba eRDMA card on PCI has an RDMA device, and so does each Broadcom card of a model with RDMA",
    why="Without its RDMA driver NCCL does not see the card. It uses the others, or falls back to TCP.",
    fix="modprobe {module}",
    stays="lost at the next reboot; name the module in /etc/modules-load.d/rdma.conf",
    reads=("/sys/bus/pci/devices/*/{vendor,device,class,driver,physfn,net,config}", "/sys/class/infiniband/*/device", "/proc/modules"),
    sources=("Linux drivers/infiniband/hw/{mlx5,bnxt_re,efa,erdma}",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each PCI function that can have an RDMA device."""
    devices = {machine.target(f"{RDMA}/{name}/device"): name for name in machine.names(RDMA)}
    models = {machine.text(f"{PCI}/{bdf}/device") or "" for bdf in devices}
    cards = {bdf: vendor for bdf in machine.names(PCI) if (vendor := _vendor(machine, bdf, models))}
    if not cards:
        if machine.names(PCI):
            yield skipped("no network card with RDMA on PCI")
        else:
            yield not_offered("", f"{PCI} cannot be read")
    for bdf, vendor in cards.items():
        yield _judge(machine, bdf, vendor, devices, models)


def _vendor(machine: Machine, bdf: str, with_rdma: set[str]) -> str:
    """The vendor of a function that should have an RDMA device, else ''. `with_rdma` has the models of cards that have one."""
    vendor, device, kind = (machine.read(f"{PCI}/{bdf}/{name}").text or "" for name in ("vendor", "device", "class"))
    bound = machine.target(f"{PCI}/{bdf}/driver")
    # Virtual functions, and drivers such as vfio-pci or uio_pci_generic, are for guests, pods or DPDK.
    guest = machine.link(f"{PCI}/{bdf}/physfn") is not None or (bound and bound not in MODULES.get(vendor, ()))
    cloud = (vendor == AMAZON and device.startswith("0xefa")) or (vendor == ALIBABA and device in ("0x107f", "0x5007"))
    other = vendor in MODULES and vendor not in (AMAZON, ALIBABA) and kind.startswith(NETWORK)
    # Many Broadcom cards have no RDMA, and management ports have it off. Judge only models that have RDMA here.
    plain = vendor == BROADCOM and device not in with_rdma and device not in THOR
    return vendor if (cloud or other) and not guest and not plain else ""


def _judge(machine: Machine, bdf: str, vendor: str, devices: dict[str, str], models: set[str]) -> Found:
    path = f"{PCI}/{bdf}/driver"
    bound = machine.target(path)
    ethernet, rdma = MODULES[vendor]
    card = bdf.rpartition(".")[0]
    shared = next((name for address, name in devices.items() if address.rpartition(".")[0] == card and "bond" in name), "")
    if (machine.read(f"{PCI}/{bdf}/config").data or b"").startswith(GONE):
        seen = Evidence(f"{PCI}/{bdf}/config", "ff ff ff ff", f"{vendor[4:]} {vendor[2:4]} ...")
        return failed(
            bdf,
            "the card does not respond on PCI: it has fallen off the bus",
            seen,
            fix=filled("dmesg | grep {bdf}; drain the host and reboot it", bdf=bdf),
        )
    evidence = Evidence(f"{RDMA}/*/device", devices.get(bdf, shared) or "none for this function", "an RDMA device")
    if bdf in devices or shared:
        return passed(bdf, f"it is {devices.get(bdf, shared)}", evidence)
    if not bound:
        return failed(bdf, "it has no driver", evidence, Evidence(path, "no driver", ethernet), fix=filled(ROW.fix, module=ethernet))
    if machine.container:
        return not_offered(bdf, "this container may not show its RDMA device", evidence)
    ethernet_only = (machine.text(f"{PCI}/{bdf}/class") or "").startswith(ETHERNET) and vendor in (NVIDIA, BROADCOM)
    report = warned if ethernet_only and machine.text(f"{PCI}/{bdf}/device") not in models and not gpu_server(machine) else failed
    if rdma not in machine.modules:
        return report(
            bdf, f"{rdma} is not loaded", evidence, Evidence("/proc/modules", f"no {rdma}", rdma), fix=filled(ROW.fix, module=rdma)
        )
    if "net" in machine.names(f"{PCI}/{bdf}") and not machine.names(f"{PCI}/{bdf}/net"):
        return not_offered(bdf, "its interface is in another network namespace, such as a pod's, and its RDMA device may be too", evidence)
    return report(
        bdf,
        f"{rdma} is loaded, but created no RDMA device",
        evidence,
        fix=filled("dmesg | grep -e {bdf} -e {module}", bdf=bdf, module=rdma),
    )


CHECK = Check(ROW, look)
