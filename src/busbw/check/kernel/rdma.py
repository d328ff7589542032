"""Kernel modules and device files of RDMA and GPUDirect."""

import json
import re
from collections.abc import Iterator

from busbw.check.base import check, failed, not_offered, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.nic.links import gpu_server
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.os_queries import accessible
from busbw.host.pci import AMAZON, ETHERNET, MELLANOX, read_devices

VERSION, RELEASE = "/proc/driver/nvidia/version", "/proc/sys/kernel/osrelease"
PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")
OPEN = "Open Kernel Module"
DMA_BUF = (5, 12)  # the first kernel whose RDMA devices can register DMA-BUF memory

GPUDIRECT_PATH = CheckRow(
    id="BW110",
    name="gpudirect-path",
    layer=Layer.KERNEL,
    title="access of RDMA devices to GPU memory (GPUDirect RDMA)",
    right=(
        "nvidia_peermem is loaded, or the driver is NVIDIA's open one on Linux 5.12 or newer"
        " (DMA-BUF)"
    ),
    why=(
        "Without it NCCL copies all data through host memory, at about half the rate or less, and"
        " its log lacks GDRDMA."
    ),
    fix="modprobe nvidia_peermem",
    stays="after reboot: lost; write nvidia_peermem to a file in /etc/modules-load.d",
    reads=("/proc/modules", "/sys/module", VERSION, RELEASE),
    sources=("NCCL user guide, troubleshooting: GPU-to-NIC communication",),
)
GDR_MODULE, GDR_DEVICE, GDR_VARIABLE = "gdrdrv", "/dev/gdrdrv", "NCCL_GDRCOPY_ENABLE"
MODULES, FILES = "/proc/modules", "/dev/infiniband"
USER_VERBS = "ib_uverbs"
CONNECTION = ("rdma_cm", "rdma_ucm")


@check(GPUDIRECT_PATH)
def check_gpudirect_path(machine: Machine) -> Iterator[Finding]:
    """Whether RDMA can reach GPU memory, by the module or by DMA-BUF."""
    devices = read_devices(machine)
    ports = [
        port
        for port in machine.ports
        if port.bdf not in devices or devices[port.bdf].vendor != AMAZON
    ]
    if not ports or not any(device.gpu for device in devices.values()):
        with_efa_only = machine.ports and not ports
        without = (
            "EFA has its own mechanism" if with_efa_only else "no GPU together with an RDMA device"
        )
        yield skipped(without)
        return
    loaded = next((name for name in PEER_MODULES if name in machine.modules), None)
    driver = machine.read(VERSION)
    if loaded:
        yield passed("", f"{loaded} is loaded", Evidence("/proc/modules", loaded))
    elif driver.text is None:
        yield unread("", driver, "the NVIDIA driver's version")
    else:
        yield _judge_without_module(machine, driver.text.partition("\n")[0])


def _judge_without_module(machine: Machine, driver: str) -> Finding:
    kernel = machine.text(RELEASE) or ""
    match = re.match(r"(\d+)\.(\d+)", kernel)
    if match is None:
        return not_offered(
            "", f"{PEER_MODULES[0]} is not loaded, and {RELEASE} gives no kernel version"
        )
    recent = (int(match.group(1)), int(match.group(2))) >= DMA_BUF
    evidence = (Evidence(VERSION, driver, OPEN), Evidence(RELEASE, kernel, "5.12 or newer"))
    if OPEN in driver and recent:
        return passed("", "the open driver exports GPU memory as DMA-BUF", *evidence)
    lack = "the driver is the proprietary one" if recent else f"Linux {kernel} is older than 5.12"
    return warned(
        "",
        f"{PEER_MODULES[0]} is not loaded, and without it RDMA cannot reach GPU memory: {lack}",
        *evidence,
        fix=GPUDIRECT_PATH.fix,
    )


GDRCOPY = CheckRow(
    id="BW111",
    name="gdrcopy",
    layer=Layer.KERNEL,
    title="GDRCopy",
    right=f"if its module {GDR_MODULE} is loaded or {GDR_VARIABLE} is 1, {GDR_DEVICE} exists",
    why=(
        "GDRCopy lowers the latency of small messages in UCX, and in NCCL if enabled. Without the"
        " device it is not used."
    ),
    fix=f"modprobe {GDR_MODULE}; in a container add --device={GDR_DEVICE}",
    stays=(
        "permanent if GDRCopy's service (gdrcopy.service) is enabled; in a container, an option at"
        " its start"
    ),
    reads=("/proc/modules", "/dev", "environment"),
    sources=("GDRCopy, README",),
)


@check(GDRCOPY)
def check_gdrcopy(machine: Machine) -> Iterator[Finding]:
    """The device, if the module or the variable needs it."""
    present = GDR_MODULE in machine.names("/dev")
    enabled = (machine.environment or {}).get(GDR_VARIABLE) == "1"
    if present:
        yield passed("", f"{GDR_DEVICE} exists", Evidence("/dev", GDR_MODULE))
    elif enabled or GDR_MODULE in machine.modules:
        reason = f"{GDR_VARIABLE}=1" if enabled else f"the module {GDR_MODULE} is loaded"
        yield warned(
            "",
            f"{reason}, but there is no {GDR_DEVICE}",
            Evidence(GDR_DEVICE, "missing", "a device"),
            fix=GDRCOPY.fix,
        )
    else:
        yield skipped("GDRCopy is not installed; it would lower the latency of small messages")


RDMA_MODULES = CheckRow(
    id="BW112",
    name="rdma-modules",
    layer=Layer.KERNEL,
    title="RDMA kernel modules",
    right=f"{USER_VERBS}, {', '.join(CONNECTION)} and, for NVIDIA NICs, mlx5_ib are loaded",
    why=(
        f"Without mlx5_ib or {USER_VERBS} NCCL finds no RDMA device and uses TCP. Without "
        "rdma_ucm programs cannot use the connection manager."
    ),
    fix="modprobe -a {modules}",
    stays=(
        "after reboot: lost; write the names to a file in /etc/modules-load.d, or enable"
        " rdma-core's or OFED's service"
    ),
    reads=(MODULES, "/sys/module", FILES, "/sys/bus/pci/devices/*/vendor"),
    sources=("Linux, Documentation/infiniband/user_verbs.rst",),
)


@check(RDMA_MODULES)
def check_rdma_modules(machine: Machine) -> Iterator[Finding]:
    """Modules that are loaded, or built in with their devices present."""
    cards = [
        device
        for device in read_devices(machine).values()
        if device.vendor == MELLANOX and device.network
    ]
    if not cards and not machine.ports:
        yield skipped("no RDMA device")
        return
    if not machine.modules:
        yield unread("", machine.read(MODULES), "the list of modules")
        return
    files = machine.names(FILES)
    built_in = set[str]()
    if any(name.startswith("uverbs") for name in files):
        built_in.add(USER_VERBS)
    if "rdma_cm" in files:
        built_in.update(CONNECTION)
    missing = [
        name
        for name in (*(["mlx5_ib"] if cards else []), USER_VERBS, *CONNECTION)
        if name not in machine.modules | built_in
    ]
    if not missing:
        yield passed(
            "",
            "the RDMA modules are loaded",
            Evidence(MODULES, f"{USER_VERBS}, {', '.join(CONNECTION)}"),
        )
        return
    needed = (
        machine.ports
        or gpu_server(machine)
        or any(not card.kind.startswith(ETHERNET) for card in cards)
    )
    report = failed if set(missing) - set(CONNECTION) and needed else warned
    evidence = (Evidence(MODULES, f"no {name}", name) for name in missing)
    yield report(
        "",
        f"not loaded: {', '.join(missing)}",
        *evidence,
        fix=filled(RDMA_MODULES.fix, modules=missing),
    )


RDMA_ACCESS = CheckRow(
    id="BW113",
    name="rdma-access",
    layer=Layer.KERNEL,
    title="access to the RDMA device files",
    right=f"this process may read and write each {FILES}/uverbs*",
    why="Without access NCCL finds no RDMA device and uses TCP.",
    fix="chmod 0666 {files}",
    stays=(
        "after reboot: lost; rdma-core's udev rules keep it. For a container add"
        " --device=/dev/infiniband at its start"
    ),
    reads=(f"access to {FILES}",),
    sources=("rdma-core, udev rules", "Docker, docker run --device"),
)


@check(RDMA_ACCESS)
def check_rdma_access(machine: Machine) -> Iterator[Finding]:
    """Whether this process may use the file of each RDMA device."""
    if not machine.ports:
        yield skipped("no RDMA device")
        return
    reading = machine.call(f"access {FILES}", lambda: accessible(FILES))
    if reading.text is None:
        yield unread("", reading, FILES)
        return
    files = {
        name: allowed
        for name, allowed in json.loads(reading.text).items()
        if name.startswith("uverbs")
    }
    closed = [f"{FILES}/{name}" for name, allowed in files.items() if not allowed]
    if not files:
        fix = f"modprobe ib_uverbs; in a container add --device={FILES}"
        report = failed if any(port.active for port in machine.ports) else warned
        yield report(
            "",
            f"RDMA devices have no file in {FILES}",
            Evidence(FILES, "no uverbs*", "uverbs*"),
            fix=fix,
        )
    elif closed:
        evidence = (Evidence(path, "no access", "read and write") for path in closed)
        yield failed(
            "",
            f"this process may not use {', '.join(closed)}",
            *evidence,
            fix=filled(RDMA_ACCESS.fix, files=closed),
        )
    else:
        yield passed(
            "",
            f"this process may use {counted(len(files), 'RDMA device')}",
            Evidence(FILES, ", ".join(files)),
        )
