"""The host against a file: versions, CPUs, memory, and the PCIe links of GPUs and RDMA devices.

Its tables are [versions], [cpus] and [memory]; those of PCIe links are [gpus] and [[ports]].
"""

from collections.abc import Iterator

from busbw.check.base import skipped
from busbw.check.expect import inventory
from busbw.check.expect.base import PartComparison, Target, expectation, gib
from busbw.check.expect.network import port_groups
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.pci import device_directory

KERNEL = "/proc/sys/kernel/osrelease"
DRIVER = "nvmlSystemGetDriverVersion"

VERSIONS = CheckRow(
    id="BW291",
    name="expect-versions",
    layer=Layer.EXPECTED,
    title="NVIDIA driver, kernel and operating system, as an expectations file has them",
    right=(
        "not older than driver_min, kernel_min and os_min of [versions], not newer than "
        "driver_max, kernel_max and os_max, and the ID of /etc/os-release is os. A newest version "
        "may be a prefix: 570 allows every 570.x"
    ),
    why=(
        "A node that missed an update, or got one by itself, fails jobs that run on the others, or"
        " runs them slower."
    ),
    fix=(
        "drain the node; install the versions that the other nodes have, hold the packages back,"
        " and reboot"
    ),
    stays="yes, until the next update",
    reads=("NVML", KERNEL, inventory.OS_RELEASE),
    sources=("the file given with --expect", "os-release(5)"),
)
MEMINFO = "/proc/meminfo"


@expectation(VERSIONS)
def expect_versions(target: Target) -> Iterator[Finding]:
    machine, expected = target.machine, target.node.versions
    compared = PartComparison(target, "", VERSIONS.fix)
    if expected.driver_min or expected.driver_max:
        _compare_version(
            compared,
            "the NVIDIA driver",
            inventory.driver(machine),
            ("driver_min", "driver_max"),
            DRIVER,
        )
    if expected.kernel_min or expected.kernel_max:
        _compare_version(
            compared, "the kernel", machine.text(KERNEL), ("kernel_min", "kernel_max"), KERNEL
        )
    system = (
        inventory.os_release(machine) if expected.os or expected.os_min or expected.os_max else {}
    )
    compared.same(
        "operating system",
        system.get("ID"),
        expected.os,
        ("versions", "os"),
        f"{inventory.OS_RELEASE}: ID",
    )
    if expected.os_min or expected.os_max:
        _compare_version(
            compared,
            "the operating system's version",
            system.get("VERSION_ID"),
            ("os_min", "os_max"),
            f"{inventory.OS_RELEASE}: VERSION_ID",
        )
    yield from compared.findings() or [skipped("the file expects no versions")]


def _compare_version(
    compared: PartComparison, quantity: str, text: str | None, keys: tuple[str, str], where: str
) -> None:
    """`text` must be a version from the first key's to the second's."""
    oldest, newest = (getattr(compared.target.node.versions, key) for key in keys)
    version = inventory.version(text or "")
    if not text or not version:
        compared.missing(quantity, f"{where} {'is ' + repr(text) if text else 'does not show it'}")
        return
    if oldest and version < inventory.version(oldest):
        key, message, bound = keys[0], f"older than {oldest}", f"{oldest} or newer"
    elif newest and _above(version, inventory.version(newest)):
        key, message, bound = keys[1], f"newer than {newest}", f"{newest} or older"
    else:
        compared.good.append(f"{quantity.removeprefix('the ')} {text}")
        return
    compared.wrong.append(f"{quantity} is {text}, {message}")
    compared.note(
        Evidence(where, text, compared.target.expected(bound, "versions", key)), right=False
    )


def _above(version: tuple[int, ...], newest: tuple[int, ...]) -> bool:
    return version[: len(newest)] > newest


CPUS = CheckRow(
    id="BW295",
    name="expect-cpus",
    layer=Layer.EXPECTED,
    title="sockets, CPUs and NUMA nodes, as an expectations file has them",
    right="exactly sockets, online and numa_nodes of [cpus]",
    why=(
        "A BIOS reset changes hyper-threading or the number of NUMA nodes, and with it where ranks"
        " and interrupts run."
    ),
    fix=(
        "compare the BIOS settings with those of a good node: hyper-threading (SMT), NUMA nodes per"
        " socket; lscpu"
    ),
    stays="permanent: hardware or a BIOS setting",
    reads=(
        f"{inventory.CPU}/online",
        f"{inventory.CPU}/cpu*/topology/core_siblings_list",
        f"{inventory.NODE}/online",
    ),
    sources=("the file given with --expect",),
)


@expectation(CPUS)
def expect_cpus(target: Target) -> Iterator[Finding]:
    machine, expected = target.machine, target.node.cpus
    compared = PartComparison(target, "", CPUS.fix)
    if expected.sockets is not None:
        compared.same(
            "number of sockets",
            inventory.sockets(machine),
            expected.sockets,
            ("cpus", "sockets"),
            f"{inventory.CPU}/cpu*/topology/core_siblings_list",
        )
    compared.same(
        "number of CPUs online",
        inventory.online(machine),
        expected.online,
        ("cpus", "online"),
        f"{inventory.CPU}/online",
    )
    compared.same(
        "number of NUMA nodes",
        inventory.numa_nodes(machine),
        expected.numa_nodes,
        ("cpus", "numa_nodes"),
        f"{inventory.NODE}/online",
    )
    yield from compared.findings() or [skipped("the file expects nothing of the CPUs")]


MEMORY = CheckRow(
    id="BW296",
    name="expect-memory",
    layer=Layer.EXPECTED,
    title="RAM and huge pages, as an expectations file has them",
    right=(
        "at least ram_bytes of [memory], less the share ram_tolerance, and at least hugepages of"
        " the default size"
    ),
    why=(
        "A memory module that failed is taken out at boot without a message. The host then has less"
        " memory and fewer memory channels."
    ),
    fix=(
        "dmidecode -t memory and the BMC's log name the module that is missing; drain the node and"
        " replace it"
    ),
    stays="permanent: hardware; for huge pages, vm.nr_hugepages in /etc/sysctl.d",
    reads=(MEMINFO,),
    sources=("the file given with --expect",),
)


@expectation(MEMORY)
def expect_memory(target: Target) -> Iterator[Finding]:
    machine, expected = target.machine, target.node.memory
    ram, pages = inventory.ram_bytes(machine), inventory.hugepages(machine)
    fewer_pages = pages is not None and pages < (expected.hugepages or 0)
    least_ram = (expected.ram_bytes or 0) * (1 - expected.ram_tolerance)
    enough_ram = ram is None or ram >= least_ram
    fix = MEMORY.fix
    if fewer_pages and enough_ram:
        fix = f"sysctl -w vm.nr_hugepages={expected.hugepages}"
    compared = PartComparison(target, "", fix)
    compared.least(
        "RAM",
        ram,
        expected.ram_bytes,
        ("memory", "ram_bytes"),
        f"{MEMINFO}: MemTotal",
        unit=gib,
        tolerance=expected.ram_tolerance,
    )
    compared.least(
        "number of huge pages",
        pages,
        expected.hugepages,
        ("memory", "hugepages"),
        f"{MEMINFO}: HugePages_Total",
    )
    yield from compared.findings() or [skipped("the file expects nothing of the memory")]


PCIE = CheckRow(
    id="BW297",
    name="expect-pcie",
    layer=Layer.EXPECTED,
    title="PCIe speed and width of GPUs and RDMA devices, as an expectations file has them",
    right=(
        "at least pcie_gt_s and pcie_width of [gpus] and [[ports]]. An idle GPU lowers its "
        "speed: then it is the highest that both ends of the link support"
    ),
    why=(
        "A BIOS that limits all slots to an older generation halves all links, and no comparison of"
        " the slots shows it."
    ),
    fix=(
        "drain the node; set the link speed of {bdf}'s slot to Auto in the BIOS; power it off and"
        " reseat the card and its riser"
    ),
    stays="permanent: hardware or a BIOS setting",
    reads=("/sys/bus/pci/devices/*/{current,max}_link_{speed,width}", "NVML"),
    sources=("the file given with --expect",),
)


@expectation(PCIE)
def expect_pcie(target: Target) -> Iterator[Finding]:
    """Each GPU that NVML can read, then the device of each port that the file has."""
    expected = target.node.gpus
    judged = expected.pcie_gt_s is not None or expected.pcie_width is not None
    gpus = [gpu for gpu in inventory.gpus(target.machine) if not gpu.error] if judged else []
    for gpu in gpus:
        yield from _compare_link(
            target, gpu.label, gpu.address, gpu.pcie_gt_s, gpu.pcie_width, ("gpus",)
        )
    judged_devices: set[str] = set()
    for filled in port_groups(target):
        group = target.node.ports[filled.number]
        if group.pcie_gt_s is None and group.pcie_width is None:
            continue
        judged = True
        for port in filled.parts:
            if port.device not in judged_devices:
                judged_devices.add(port.device)
                link = inventory.port_link(target.machine, port)
                yield from _compare_link(
                    target, port.device, port.bdf, link.speed, link.width, ("ports", filled.number)
                )
    if not judged:
        yield skipped("the file expects nothing of PCIe links")


def _compare_link(
    target: Target,
    name: str,
    bdf: str,
    speed: float | None,
    width: int | None,
    table: tuple[str | int, ...],
) -> list[Finding]:
    expected = target.node.gpus if table == ("gpus",) else target.node.ports[int(table[1])]
    compared = PartComparison(target, name, PCIE.fix.format(bdf=bdf or name))
    # An idle GPU lowers its speed, and is compared by the highest possible one.
    which = "{current,max}_link_speed" if table == ("gpus",) else "current_link_speed"
    compared.least(
        "PCIe speed",
        speed,
        expected.pcie_gt_s,
        (*table, "pcie_gt_s"),
        f"{device_directory(bdf)}/{which}",
        unit="{:g} GT/s".format,
    )
    compared.least(
        "PCIe width",
        width,
        expected.pcie_width,
        (*table, "pcie_width"),
        f"{device_directory(bdf)}/current_link_width",
        unit="x{:g}".format,
    )
    return compared.findings()
