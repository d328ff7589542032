"""The drivers of the network cards."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, unanswered, warned
from busbw.check.machine import Machine
from busbw.check.nic.links import cabled, hardware
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.ethtool import driver

MODULES = "/sys/module"
HALVES = ("mlx5_core", "mlx5_ib")

ROW = CheckRow(
    id="BW068",
    name="nic-driver",
    layer=Layer.NIC,
    title="drivers of the network cards",
    right="the Ethernet and the RDMA part of the driver come from the same release",
    why="A kernel update or a partial installation can leave one module from the kernel and one from DOCA-OFED. They may not work "
    "together.",
    fix="drain the host; reinstall DOCA-OFED for kernel {kernel}, or remove it; then reboot (or, as its RDMA ports and their interfaces "
    "go down, from the console: /etc/init.d/openibd restart)",
    stays="until the next kernel update, unless the modules are rebuilt by DKMS",
    reads=("ethtool -i", "/sys/module/{mlx5_core,mlx5_ib}/version"),
    sources=("Linux Documentation/ABI/stable/sysfs-module",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each interface of an RDMA port. The kernel's own modules have no version; those of DOCA-OFED have one."""
    ports = cabled(machine)
    named = [(port, netdev) for port in ports for netdev in hardware(machine, port)]
    if not named:
        yield skipped("no RDMA port with an interface here" if ports else "no RDMA port")
    for port, netdev in named:
        found = driver(machine, netdev)
        if isinstance(found, str):
            yield unanswered(port.name, f"the driver of {netdev} cannot be read: {found}", found)
            continue
        values = {"driver": found.name, "version": found.version, "firmware": found.firmware, "bus": found.bus}
        evidence = [Evidence(f"ethtool -i {netdev}: {name}", value) for name, value in values.items() if value]
        texts = {half: machine.text(f"{MODULES}/{half}/version") or "" for half in HALVES}
        if found.name == "mlx5_core" and len(set(texts.values())) > 1:
            evidence += [Evidence(f"{MODULES}/{half}/version", text or "none (kernel's own)") for half, text in texts.items()]
            fix = filled(ROW.fix, kernel=machine.host.kernel or "KERNEL")
            yield warned(port.name, "mlx5_core and mlx5_ib come from different releases", *evidence, fix=fix)
        else:
            yield passed(port.name, f"{netdev}: {found.name} {found.version}".rstrip(), *evidence)


CHECK = Check(ROW, look)
