"""The CPUs that handle interrupts of network controllers."""

from collections.abc import Iterator

from busbw.check.base import Check, broken, judged, not_offered, skipped, unread
from busbw.check.machine import Machine
from busbw.check.parts import Part, nics
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.cpu import count_list
from busbw.host.settings import cpu_set

NODES = "/sys/devices/system/node"

ROW = CheckRow(
    id="BW147",
    name="cpu-irq-affinity",
    layer=Layer.CPU,
    title="CPUs that handle interrupts of network controllers",
    right="most are on the NUMA node of the NIC",
    why="Otherwise TCP packets are processed on the other socket, and their data crosses the link between the sockets.",
    fix="echo {cpus} | tee {files}",
    stays="lost at the next reboot, and irqbalance may change it; run it from a systemd unit, and exclude the interrupts from irqbalance",
    reads=("/sys/bus/pci/devices/*/msi_irqs", "/proc/irq/*/effective_affinity_list", f"{NODES}/node*/cpulist"),
    sources=("Linux, Documentation/core-api/irq/irq-affinity.rst",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each controller with interrupts."""
    nodes = machine.read(f"{NODES}/online")
    if broken(nodes):
        yield unread("", nodes, "the list of NUMA nodes")
        return
    if count_list(nodes.text or "") <= 1:
        yield skipped("the machine shows no more than one NUMA node")
        return
    parts = [(part, numbers) for part in nics(machine) if (numbers := machine.names(f"{part.path}/msi_irqs"))]
    if not parts:
        yield skipped("no network controller with interrupts of its own")
    for part, numbers in parts:
        yield _judge(machine, part, numbers)


def _judge(machine: Machine, part: Part, numbers: tuple[str, ...]) -> Found:
    node = machine.text(f"{part.path}/numa_node") or ""
    local = cpu_set(machine.text(f"{NODES}/node{node}/cpulist") or "")
    handled = {path: cpus for number in numbers for path, cpus in [_cpus(machine, number)] if cpus}
    if not local or not handled:
        return not_offered(part.name, "its NUMA node is unknown" if not local else "the CPUs of its interrupts cannot be read")
    far = [path for path, cpus in handled.items() if not cpus & local]
    text = f"{len(far)} of {len(handled)} interrupts are handled on another NUMA node"
    cpus = machine.text(f"{NODES}/node{node}/cpulist") or ""
    settable = [path.replace("effective_affinity_list", "smp_affinity_list") for path in far]
    return judged(
        right=2 * len(far) <= len(handled),
        subject=part.name,
        good=text,
        bad=text,
        evidence=tuple(Evidence(path, machine.text(path) or "", f"CPUs {cpus} (node {node})") for path in far[:1] or list(handled)[:1]),
        fix=filled(ROW.fix, cpus=cpus, files=settable),
    )


def _cpus(machine: Machine, number: str) -> tuple[str, set[int]]:
    """The file and CPUs of an interrupt. Kernels before 4.15 have only the requested CPUs."""
    path = f"/proc/irq/{number}/effective_affinity_list"
    if machine.text(path):
        return path, cpu_set(machine.text(path) or "")
    path = f"/proc/irq/{number}/smp_affinity_list"
    return path, cpu_set(machine.text(path) or "")


CHECK = Check(ROW, look)
