"""The state of RDMA ports."""

from collections.abc import Iterator

from busbw.check.base import Check, broken, failed, passed, skipped, unread, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import own
from busbw.check.nic.rails import should_be_active
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.nic import RDMA

ACTIVE = "4: ACTIVE"
LINKED = ("INIT", "ARMED")  # the physical link is up

ROW = CheckRow(
    id="BW061",
    name="nic-state",
    layer=Layer.NIC,
    title="state of RDMA ports",
    right="4: ACTIVE; only a port that no port like it suggests and that never had a link may be down",
    why="NCCL uses only active ports. It silently runs without a port that is down, and the job is slower. INIT means that a port has a "
    "link, and no subnet manager has configured it.",
    fix="rdma link show {device}",
    stays="depends on the cause; the checks nic-physical-state and nic-subnet-manager name it",
    reads=("/sys/class/infiniband/*/ports/*/{state,counters/link_downed}", "/sys/class/net/*/carrier_up_count"),
    sources=(
        "Linux Documentation/ABI/stable/sysfs-class-infiniband",
        "Azure node health checks, check_hw_ib",
        "NVSentinel, NIC health monitor",
    ),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each device without a port, then each port except those for guests."""
    portless = [name for name in machine.names(RDMA) if not machine.names(f"{RDMA}/{name}/ports")]
    for name in portless:
        evidence = Evidence(f"{RDMA}/{name}/ports", "no port", "1")
        yield failed(
            name, "the RDMA device shows no port: its driver or firmware failed", evidence, fix=filled("dmesg | grep {name}", name=name)
        )
    ports = own(machine)
    if not ports and not portless:
        yield skipped("no RDMA port")
    for port in ports:
        yield _judge(machine, port, ports)


def _judge(machine: Machine, port: Port, ports: tuple[Port, ...]) -> Found:
    path = f"{port.path}/state"
    reading, fix = machine.read(path), filled(ROW.fix, device=port.device)
    if broken(reading):
        seen = Evidence(path, reading.reason.removeprefix(f"{path}: "), ACTIVE)
        return failed(
            port.name,
            "its state cannot be read: the device does not answer",
            seen,
            fix=filled("dmesg | grep {name}", name=port.bdf or port.device),
        )
    if not reading.text:
        return unread(port.name, reading, "the state")
    evidence = Evidence(path, reading.text, ACTIVE)
    if port.active:
        return passed(port.name, "it is active", evidence)
    state = reading.text.partition(": ")[2] or reading.text
    if not any(one.active for one in ports):
        return failed(port.name, f"it is {state}, like all ports: NCCL has no RDMA", evidence, fix=fix)
    if state in LINKED:
        return failed(port.name, f"it is {state}: it has a link, but is not configured, and NCCL runs without it", evidence, fix=fix)
    if reason := should_be_active(machine, port, ports):
        return failed(port.name, f"it is {state}, while {reason}: NCCL runs without it", evidence, fix=fix)
    return warned(port.name, f"it is {state}: NCCL runs without it", evidence, fix=fix)


CHECK = Check(ROW, look)
