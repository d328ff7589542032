"""Network cards without an RDMA device, and cards that PCI no longer shows."""

import re
from collections.abc import Iterator

from busbw.check.base import check, failed, not_offered, passed, skipped, warned
from busbw.check.gpu.per_gpu import WITHOUT_PCI
from busbw.check.machine import Machine
from busbw.check.nic.links import gpu_server
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.kernel_rule import KMSG
from busbw.core.sizes import counted
from busbw.host.gpu import switches_on_pci
from busbw.host.kernel_log_past import KernelLogLine, PastLog, cards_seen, read_past
from busbw.host.nic import RDMA
from busbw.host.pci import DEVICES, ETHERNET, MELLANOX, NETWORK, read_devices

PCI = "/sys/bus/pci/devices"
MODULES_BY_VENDOR = {
    "0x15b3": ("mlx5_core", "mlx5_ib"),
    "0x14e4": ("bnxt_en", "bnxt_re"),
    "0x1d0f": ("efa", "efa"),
    "0x1ded": ("erdma", "erdma"),
}
# PCI devices of Broadcom cards of 100 to 400 Gbit/s, which should have RDMA.
THOR = ("0x1750", "0x1751", "0x1752", "0x1760")
NVIDIA, BROADCOM, AMAZON, ALIBABA = MODULES_BY_VENDOR
# What is read from a card that does not respond. A virtual function that works has only the first
# 4 bytes so.
NO_RESPONSE = b"\xff" * 16

PRESENT = CheckRow(
    id="BW060",
    name="nic-present",
    layer=Layer.NIC,
    title="RDMA devices of the network cards",
    right=(
        "each NVIDIA, Amazon EFA or Alibaba eRDMA card on PCI has an RDMA device, and so does each"
        " Broadcom card of a model with RDMA"
    ),
    why=(
        "Without its RDMA driver NCCL does not see the card. It uses the others, or falls back to"
        " TCP."
    ),
    fix="modprobe {module}",
    stays="after reboot: lost; name the module in /etc/modules-load.d/rdma.conf",
    reads=(
        "/sys/bus/pci/devices/*/{vendor,device,class,driver,physfn,net,config}",
        "/sys/class/infiniband/*/device",
        "/proc/modules",
    ),
    sources=("Linux drivers/infiniband/hw/{mlx5,bnxt_re,efa,erdma}",),
)
MLX5_MODULE, MODULES = "mlx5_ib", "/proc/modules"
_NAME = re.compile(r"mlx5_(\d+)")


@check(PRESENT)
def check_present(machine: Machine) -> Iterator[Finding]:
    """A finding for each PCI function that should have an RDMA device."""
    devices = {machine.target(f"{RDMA}/{name}/device"): name for name in machine.names(RDMA)}
    models = {machine.text(f"{PCI}/{bdf}/device") or "" for bdf in devices}
    functions = machine.names(PCI)
    vendors = {bdf: _vendor_of_rdma_card(machine, bdf, models) for bdf in functions}
    cards = {bdf: vendor for bdf, vendor in vendors.items() if vendor}
    if not cards:
        if functions:
            yield skipped("no network card with RDMA on PCI")
        else:
            yield not_offered("", f"{PCI} cannot be read")
    for bdf, vendor in cards.items():
        yield _judge_card(machine, bdf, vendor, devices, models)


def _vendor_of_rdma_card(machine: Machine, bdf: str, with_rdma: set[str]) -> str:
    """The vendor of a function that should have an RDMA device, else ''.

    `with_rdma` has the models of cards that have one.
    """
    vendor, device, kind = (
        machine.read(f"{PCI}/{bdf}/{name}").text or "" for name in ("vendor", "device", "class")
    )
    driver = machine.target(f"{PCI}/{bdf}/driver")
    # Virtual functions, and drivers such as vfio-pci or uio_pci_generic, are for guests, pods or
    # DPDK.
    virtual = machine.link(f"{PCI}/{bdf}/physfn") is not None
    if virtual or (driver and driver not in MODULES_BY_VENDOR.get(vendor, ())):
        return ""
    if vendor == AMAZON:
        has_rdma = device.startswith("0xefa")
    elif vendor == ALIBABA:
        has_rdma = device in ("0x107f", "0x5007")
    else:
        has_rdma = vendor in MODULES_BY_VENDOR and kind.startswith(NETWORK)
    # Many Broadcom cards have no RDMA, and management ports have it off. Judge only models that
    # have RDMA here.
    if vendor == BROADCOM and device not in with_rdma and device not in THOR:
        return ""
    return vendor if has_rdma else ""


def _judge_card(
    machine: Machine, bdf: str, vendor: str, devices: dict[str, str], models: set[str]
) -> Finding:
    ethernet, _ = MODULES_BY_VENDOR[vendor]
    card = bdf.rpartition(".")[0]
    shared = ""  # the RDMA device of a bond, which all functions of the card share
    for address, name in devices.items():
        if address.rpartition(".")[0] == card and "bond" in name:
            shared = shared or name
    if (machine.read(f"{PCI}/{bdf}/config").data or b"").startswith(NO_RESPONSE):
        message = "the card does not respond on PCI: it has fallen off the bus"
        expected = f"{vendor[4:]} {vendor[2:4]} ..."
        evidence = Evidence(f"{PCI}/{bdf}/config", "ff ff ff ff", expected)
        fix = filled("dmesg | grep {bdf}; drain the host and reboot it", bdf=bdf)
        return failed(bdf, message, evidence, fix=fix)
    rdma_device = devices.get(bdf, shared)
    shown = rdma_device or "none for this function"
    evidence = Evidence(f"{RDMA}/*/device", shown, "an RDMA device")
    if bdf in devices or shared:
        return passed(bdf, f"it is {rdma_device}", evidence)
    path = f"{PCI}/{bdf}/driver"
    if not machine.target(path):
        without = Evidence(path, "no driver", ethernet)
        fix = filled(PRESENT.fix, module=ethernet)
        return failed(bdf, "it has no driver", evidence, without, fix=fix)
    return _judge_without_rdma(machine, bdf, vendor, models, evidence)


def _judge_without_rdma(
    machine: Machine, bdf: str, vendor: str, models: set[str], evidence: Evidence
) -> Finding:
    """The finding on a card that has its driver and no RDMA device."""
    _, rdma = MODULES_BY_VENDOR[vendor]
    if machine.container:
        return not_offered(bdf, "this container may not show its RDMA device", evidence)
    kind = machine.text(f"{PCI}/{bdf}/class") or ""
    ethernet_only = kind.startswith(ETHERNET) and vendor in (NVIDIA, BROADCOM)
    other_model = machine.text(f"{PCI}/{bdf}/device") not in models
    optional = ethernet_only and other_model and not gpu_server(machine)
    report = warned if optional else failed
    if rdma not in machine.modules:
        return report(
            bdf,
            f"{rdma} is not loaded",
            evidence,
            Evidence("/proc/modules", f"no {rdma}", rdma),
            fix=filled(PRESENT.fix, module=rdma),
        )
    if "net" in machine.names(f"{PCI}/{bdf}") and not machine.names(f"{PCI}/{bdf}/net"):
        return not_offered(
            bdf,
            "its interface is in another network namespace, such as a pod's, and its RDMA device"
            " may be too",
            evidence,
        )
    return report(
        bdf,
        f"{rdma} is loaded, but created no RDMA device",
        evidence,
        fix=filled("dmesg | grep -e {bdf} -e {module}", bdf=bdf, module=rdma),
    )


MISSING = CheckRow(
    id="BW086",
    name="nic-missing",
    layer=Layer.NIC,
    title="network cards of NVIDIA that PCI no longer shows",
    right=(
        "PCI shows every card that the kernel found since boot, and the RDMA devices mlx5_0, mlx5_1"
        " and so on have no gap"
    ),
    why=(
        "A card that falls off the bus is removed with its RDMA device. NCCL then uses the others,"
        " or TCP, and no check of a port sees it."
    ),
    fix=(
        "dmesg | grep {bdf}; drain the host and power it off and on; if the card is still missing,"
        " check its seat and power, or replace it"
    ),
    stays="a reboot brings the card back only if the fault was transient",
    reads=(f"{DEVICES}/*/{{vendor,class}}", "/dev/kmsg", f"{RDMA}/*", MODULES),
    sources=(
        "Linux drivers/pci/probe.c",
        "Linux drivers/infiniband/core/device.c, alloc_name",
        "NVSentinel, NIC health monitor",
    ),
)


@check(MISSING, after=PRESENT)
def check_missing(machine: Machine) -> Iterator[Finding]:
    """Each card that the kernel log names, or one finding for the machine."""
    names = machine.names(DEVICES)
    if not names:
        yield not_offered("", WITHOUT_PCI)
        return
    log = read_past(machine)
    logged = cards_seen(log)
    gone = {
        bdf: line
        for bdf, line in logged.items()
        if bdf not in names and not _taken_by_cloud(machine, line)
    }
    for bdf, line in gone.items():
        evidence = Evidence(KMSG, line.text, "still on PCI")
        yield failed(
            bdf,
            "the kernel found this network card, and PCI no longer shows it",
            evidence,
            fix=filled(MISSING.fix, bdf=bdf),
        )
    if not gone:
        yield _judge_numbers(machine, log, logged=bool(logged))


def _taken_by_cloud(machine: Machine, line: KernelLogLine) -> bool:
    """Whether a cloud may have taken a card from a virtual machine.

    Azure does so with its Ethernet functions while it services a host.
    """
    return bool(machine.hypervisor) and "class 0x0207" not in line.text


def _judge_numbers(machine: Machine, log: PastLog, *, logged: bool) -> Finding:
    cards = [
        bdf
        for bdf, device in read_devices(machine).items()
        if device.vendor == MELLANOX and device.network
    ]
    if not cards:
        return _judge_no_card(machine)
    gap = _first_gap(machine, cards)
    if gap:
        message = f"there is no {gap}, while all cards on PCI have an RDMA device"
        evidence = Evidence(RDMA, ", ".join(machine.names(RDMA)), gap)
        return warned("", message, evidence, fix=filled(MISSING.fix, bdf=gap))
    text = f"{counted(len(cards), 'function')} on PCI"
    if logged:
        return passed("", text, Evidence(KMSG, "the cards that the kernel found are still there"))
    if _device_numbers(machine):
        return passed("", text, Evidence(RDMA, ", ".join(machine.names(RDMA)), "no gap"))
    why = "the kernel log no longer has the start"
    if log.reason:
        why = f"the kernel log cannot be read: {log.reason}"
    return not_offered("", f"{text}; how many there were is not known: {why}")


def _judge_no_card(machine: Machine) -> Finding:
    """The finding without any card: a loaded driver is a sign of one.

    But DOCA-OFED may load it without a card.
    """
    if MLX5_MODULE not in machine.modules or machine.hypervisor or machine.container:
        return skipped("no network card of NVIDIA, and no sign of one")
    evidence = Evidence(MODULES, MLX5_MODULE, "a network card of NVIDIA on PCI")
    report = failed if switches_on_pci(machine) else warned
    return report(
        "",
        f"{MLX5_MODULE} is loaded, and PCI shows no network card of NVIDIA",
        evidence,
        fix=filled(MISSING.fix, bdf=MLX5_MODULE),
    )


def _device_numbers(machine: Machine) -> list[int]:
    """The numbers in the names of RDMA devices, if all names are the kernel's own.

    A bond, a subfunction or an administrator changes them.
    """
    matches = [_NAME.fullmatch(name) for name in machine.names(RDMA)]
    return sorted(int(match[1]) for match in matches if match) if all(matches) else []


def _first_gap(machine: Machine, cards: list[str]) -> str:
    """The first name that is missing in mlx5_0, mlx5_1 and so on.

    The kernel gives the lowest free number, so a gap was a device.

    '' if a card has no RDMA device here: it is another one's, or nic-present judges it.
    """
    shown = {machine.target(f"{RDMA}/{name}/device") for name in machine.names(RDMA)}
    numbers = _device_numbers(machine)
    if machine.hypervisor or not numbers or shown != set(cards):
        return ""
    return next((f"mlx5_{number}" for number in range(numbers[-1]) if number not in numbers), "")
