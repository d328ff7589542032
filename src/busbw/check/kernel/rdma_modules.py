"""The kernel modules of RDMA."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.nic.links import gpu_server
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.pci import ETHERNET, MELLANOX, read_devices

MODULES, FILES = "/proc/modules", "/dev/infiniband"
USER = "ib_uverbs"
CONNECTION = ("rdma_cm", "rdma_ucm")

ROW = CheckRow(
    id="BW112",
    name="rdma-modules",
    layer=Layer.KERNEL,
    title="RDMA kernel modules",
    right=f"{USER}, {', '.join(CONNECTION)} and, for NVIDIA NICs, mlx5_ib are loaded",
    why=f"Without mlx5_ib or {USER} NCCL finds no RDMA device and uses TCP. Without rdma_ucm programs cannot use the connection manager.",
    fix="modprobe -a {modules}",
    stays="lost at the next reboot; write the names to a file in /etc/modules-load.d, or enable rdma-core's or OFED's service",
    reads=(MODULES, "/sys/module", FILES, "/sys/bus/pci/devices/*/vendor"),
    sources=("Linux, Documentation/infiniband/user_verbs.rst",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Modules that are loaded, or built in with their devices present."""
    cards = [device for device in read_devices(machine).values() if device.vendor == MELLANOX and device.network]
    if not cards and not machine.ports:
        yield skipped("no RDMA device")
        return
    if not machine.modules:
        yield unread("", machine.read(MODULES), "the list of modules")
        return
    files = machine.names(FILES)
    made = {USER} if any(name.startswith("uverbs") for name in files) else set[str]()
    made |= set(CONNECTION) if "rdma_cm" in files else set[str]()
    missing = [name for name in (*(["mlx5_ib"] if cards else []), USER, *CONNECTION) if name not in machine.modules | made]
    if not missing:
        yield passed("", "the RDMA modules are loaded", Evidence(MODULES, f"{USER}, {', '.join(CONNECTION)}"))
        return
    needed = machine.ports or gpu_server(machine) or any(not card.kind.startswith(ETHERNET) for card in cards)
    report = failed if set(missing) - set(CONNECTION) and needed else warned
    evidence = (Evidence(MODULES, f"no {name}", name) for name in missing)
    yield report("", f"not loaded: {', '.join(missing)}", *evidence, fix=filled(ROW.fix, modules=missing))


CHECK = Check(ROW, look)
