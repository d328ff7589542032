"""The CPUs that ranks may use."""

import json
from collections.abc import Iterator

from busbw.check.base import Check, passed, unread, warned
from busbw.check.machine import Machine
from busbw.check.parts import gpus
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.os_queries import allowed_cpus
from busbw.host.settings import cpu_set

EACH = 2  # a rank's own thread and NCCL's proxy thread, which both poll
NODES = "/sys/devices/system/node"

ROW = CheckRow(
    id="BW136",
    name="allowed-cpus",
    layer=Layer.LIMITS,
    title="CPUs that this process may use",
    right=f"{EACH} or more per GPU, and some on the NUMA node of each GPU",
    why="Ranks that share CPUs wait for each other. NCCL binds its threads near the GPU, but only to allowed CPUs.",
    fix="start the job with CPUs {cpus} (in Slurm --cpus-per-task, in Docker --cpuset-cpus, with taskset: taskset -c {cpus})",
    stays="permanent in the job or container spec",
    reads=("sched_getaffinity(2)", "/sys/devices/system/cpu/online", f"{NODES}/node*/cpulist"),
    sources=("sched_setaffinity(2)", "NCCL user guide, NCCL_IGNORE_CPU_AFFINITY"),
)


def look(machine: Machine) -> Iterator[Found]:
    """The affinity of this process, which the ranks inherit."""
    reading = machine.call("allowed cpus", allowed_cpus)
    if reading.text is None:
        yield unread("", reading, "the affinity of this process")
        return
    listed = {gpu.bus_id for gpu in machine.host.gpus}  # a container or job may have only some of those on PCI
    allowed, cards = set(json.loads(reading.text)), [card for card in gpus(machine) if card.device.bdf in listed or not listed]
    online = machine.text("/sys/devices/system/cpu/online") or ""
    fix = filled(ROW.fix, cpus=online or "CPUS")
    evidence = Evidence("sched_getaffinity(2)", f"{len(allowed)} CPUs", f"{max(1, EACH * len(cards))} or more of {online}")
    nodes = {card.name: machine.text(f"{card.path}/numa_node") for card in cards}
    far = [name for name, node in nodes.items() if (local := _cpus(machine, node)) and not local & allowed]
    if len(allowed) < EACH * len(cards):
        yield warned("", f"{counted(len(allowed), 'CPU')} for {counted(len(cards), 'GPU')}", evidence, fix=fix)
    if far:
        yield warned("", f"none of the allowed CPUs is on the NUMA node of {', '.join(far)}", evidence, fix=fix)
    elif len(allowed) >= EACH * len(cards):
        yield passed("", f"this process may run on {counted(len(allowed), 'CPU')}", evidence)


def _cpus(machine: Machine, node: str | None) -> set[int]:
    return cpu_set(machine.text(f"{NODES}/node{node}/cpulist") or "")


CHECK = Check(ROW, look)
