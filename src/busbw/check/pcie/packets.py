"""Sizes and ordering of PCIe packets."""

from collections.abc import Iterator

from busbw.check.base import check, judged, passed, skipped, warned
from busbw.check.machine import NONE, Machine, gpus, nics, rdma_nics, slots
from busbw.check.pcie.upstream import BRIDGES, CONFIG, amd_host, express, plain
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.pci import MELLANOX, device_directory

BEST_READ_REQUEST = 4096
# In the Device Control register: the code of 4096 bytes, and the bits of the size.
READ_REQUEST_VALUE = 5 << 12
READ_REQUEST_MASK = 7 << 12

MAX_READ_REQUEST = CheckRow(
    id="BW048",
    name="pcie-max-read-request",
    layer=Layer.PCIE,
    title="PCIe max read request size of NVIDIA NICs",
    right=f"{BEST_READ_REQUEST} bytes",
    why=(
        "The NIC reads the data it sends from memory. With requests of 512 bytes it needs more"
        " requests in flight for the same rate."
    ),
    fix=(
        "drain the host; setpci -s {bdf}"
        f" CAP_EXP+8.w={READ_REQUEST_VALUE:04x}:{READ_REQUEST_MASK:04x}"
    ),
    stays=(
        "after reboot: lost; set it in a systemd unit or udev rule, or with NVIDIA's NIC"
        " Configuration Operator"
    ),
    reads=(CONFIG,),
    sources=("NVIDIA Network Operator, NIC configuration: pciPerformanceOptimized",),
)
MIN_PAYLOAD_BYTES = 256
RELAXED_BIT = 1 << 4


@check(MAX_READ_REQUEST)
def check_max_read_request(machine: Machine) -> Iterator[Finding]:
    parts = [part for part in rdma_nics(machine) if part.device.vendor == MELLANOX]
    if machine.hypervisor or not parts:
        yield skipped(
            "in a virtual machine the host sets it" if parts else "no RDMA device of NVIDIA"
        )
        return
    for part in parts:
        configs = express(machine, [part.device.bdf])
        yield from configs.unread(part.name)
        for config in configs.read.values():
            size, control = config.max_read_request or 0, config.control or 0
            yield judged(
                right=size >= BEST_READ_REQUEST,
                subject=part.name,
                good=f"it reads up to {size} bytes per request",
                bad=f"it reads up to {size} bytes per request, not {BEST_READ_REQUEST}",
                evidence=(
                    Evidence(
                        f"{part.path}/config, Device Control",
                        f"{control:#06x}: {size} bytes",
                        f"{BEST_READ_REQUEST} bytes",
                    ),
                ),
                fix=filled(MAX_READ_REQUEST.fix, bdf=part.device.bdf),
            )


MAX_PAYLOAD = CheckRow(
    id="BW049",
    name="pcie-max-payload",
    layer=Layer.PCIE,
    title="PCIe max payload size from GPUs and network controllers to the root port",
    right=f"the same on the device and all bridges above it, and {MIN_PAYLOAD_BYTES} bytes or more",
    why=(
        "Small packets spend a larger share of the link on headers. A device may not send more than"
        " the smallest size on its path."
    ),
    fix=(
        "drain the host; set Max Payload Size to Auto in the BIOS, or add pci=pcie_bus_safe to "
        "GRUB_CMDLINE_LINUX in /etc/default/grub and run update-grub (on RHEL: grubby "
        "--update-kernel=ALL --args=pci=pcie_bus_safe); then reboot"
    ),
    stays="survives a reboot, as a BIOS setting or on the kernel's command line",
    reads=(BRIDGES, CONFIG),
    sources=("Linux, Documentation/admin-guide/kernel-parameters.txt: pcie_bus_safe",),
)


@check(MAX_PAYLOAD)
def check_max_payload(machine: Machine) -> Iterator[Finding]:
    """A finding for each device, with the bridges above it."""
    parts = slots(gpus(machine) + nics(machine))
    if machine.hypervisor or not parts:
        yield skipped("in a virtual machine the host sets it" if parts else NONE)
        return
    for part in parts:
        if plain(machine, part):
            yield skipped("it is not a PCI Express device", part.name)
            continue
        configs = express(machine, (part.device.bdf, *reversed(part.device.above or ())))
        yield from configs.unread(part.name)
        if configs.reasons:
            continue
        sizes = {bdf: config.max_payload or 0 for bdf, config in configs.read.items()}
        least, *others = sorted(set(sizes.values()))
        evidence = [
            Evidence(
                f"{device_directory(bdf)}/config, Device Control",
                f"{size} bytes",
                "equal along the path",
            )
            for bdf, size in sizes.items()
        ]
        if not others and least >= MIN_PAYLOAD_BYTES:
            yield passed(
                part.name, f"packets carry up to {least} bytes on the whole path", *evidence
            )
        else:
            carried = f"up to {least}"
            if others:
                carried = " and ".join(map(str, (least, *others)))
            message = f"packets on its path carry {carried} bytes"
            yield warned(part.name, message, *evidence, fix=MAX_PAYLOAD.fix)


RELAXED_ORDERING = CheckRow(
    id="BW050",
    name="pcie-relaxed-ordering",
    layer=Layer.PCIE,
    title="relaxed ordering of NVIDIA NICs",
    right="enabled on hosts with AMD CPUs; not judged on others",
    why=(
        "Without relaxed ordering a NIC's writes are strictly ordered, which is slow on AMD hosts"
        " in particular."
    ),
    fix=f"drain the host; setpci -s {{bdf}} CAP_EXP+8.w={RELAXED_BIT:04x}:{RELAXED_BIT:04x}",
    stays=(
        "after reboot: lost; enable relaxed ordering in the BIOS, or run the command from a systemd"
        " unit"
    ),
    reads=(CONFIG, "/sys/bus/pci/devices/*/vendor of the root port"),
    sources=(
        "NCCL user guide, NCCL_IB_PCI_RELAXED_ORDERING",
        "PCI Express Base Specification, Device Control register",
    ),
)


@check(RELAXED_ORDERING)
def check_relaxed_ordering(machine: Machine) -> Iterator[Finding]:
    parts = [part for part in rdma_nics(machine) if part.device.vendor == MELLANOX]
    if machine.hypervisor or not parts:
        yield skipped(
            "in a virtual machine the host sets it" if parts else "no RDMA device of NVIDIA"
        )
        return
    for part in parts:
        configs = express(machine, [part.device.bdf])
        yield from configs.unread(part.name)
        for config in configs.read.values():
            control = config.control or 0
            evidence = Evidence(
                f"{part.path}/config, Device Control", f"{control:#06x}", f"bit {RELAXED_BIT:#06x}"
            )
            if config.relaxed_ordering:
                yield passed(part.name, "relaxed ordering is enabled", evidence)
            elif amd_host(machine, part):
                fix = filled(RELAXED_ORDERING.fix, bdf=part.device.bdf)
                yield warned(
                    part.name,
                    "relaxed ordering is not enabled, on a host with an AMD CPU",
                    evidence,
                    fix=fix,
                )
            else:
                yield skipped(
                    "relaxed ordering is off, which is judged only on hosts with AMD CPUs",
                    part.name,
                )
