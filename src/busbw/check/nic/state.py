"""The state of RDMA ports."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.nic.links import own
from busbw.core.checking import CheckRow, Evidence, Found, Layer
from busbw.core.shell_words import filled

ROW = CheckRow(
    id="BW061",
    name="nic-state",
    layer=Layer.NIC,
    title="state of RDMA ports",
    right="4: ACTIVE",
    why="NCCL uses only active ports. It silently runs without a port that is down, and the job is slower.",
    fix="rdma link show {device}",
    stays="depends on the cause; the checks nic-physical-state and nic-subnet-manager name it",
    reads=("/sys/class/infiniband/*/ports/*/state",),
    sources=("Linux Documentation/ABI/stable/sysfs-class-infiniband",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each port except those for guests. Fails if none is active."""
    ports = own(machine)
    if not ports:
        yield skipped("no RDMA port")
    none = not any(port.active for port in ports)
    for port in ports:
        path = f"{port.path}/state"
        reading = machine.read(path)
        if not reading.text:
            yield unread(port.name, reading, "the state")
            continue
        evidence = Evidence(path, reading.text, "4: ACTIVE")
        if port.active:
            yield passed(port.name, "it is active", evidence)
            continue
        state = reading.text.partition(": ")[2] or reading.text
        fix = filled(ROW.fix, device=port.device)
        if none:
            yield failed(port.name, f"it is {state}, like all ports: NCCL has no RDMA", evidence, fix=fix)
        else:
            yield warned(port.name, f"it is {state}: NCCL runs without it", evidence, fix=fix)


CHECK = Check(ROW, look)
