"""The locked memory limit."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, unread, warned
from busbw.check.limits.processes import PATH, limit
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.cpu import meminfo
from busbw.host.settings import capabilities

STATUS, MEMORY, IPC_LOCK = "/proc/self/status", "/proc/meminfo", 14  # linux/capability.h
FEW = 1 << 30  # NCCL's buffers of one GPU and a few channels

ROW = CheckRow(
    id="BW130",
    name="memlock",
    layer=Layer.LIMITS,
    title="locked memory limit",
    right="unlimited, at least the size of RAM, or the capability IPC_LOCK",
    why="RDMA registers memory, which locks it. With a low limit NCCL fails with ibv_reg_mr or ibv_create_qp: cannot allocate memory.",
    fix="ulimit -l unlimited",
    stays="in /etc/security/limits.conf (* - memlock unlimited); for services LimitMEMLOCK=infinity; "
    "for containers --ulimit memlock=-1 or --cap-add IPC_LOCK",
    reads=(PATH, STATUS, MEMORY),
    sources=("NCCL user guide, troubleshooting",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The soft limit of this process, which ranks started from the same shell inherit."""
    reading, soft = limit(machine, "Max locked memory")
    if soft is None:
        yield unread("", reading, "the limits of this process")
        return
    evidence = Evidence(PATH, f"Max locked memory {soft}", "unlimited")
    if soft == "unlimited":
        yield passed("", "locked memory is not limited", evidence)
    elif int(soft) >= (ram := meminfo(machine, "MemTotal")) > 0:
        yield passed("", f"locked memory is limited to {soft} bytes, all of the RAM or more", evidence, Evidence(MEMORY, str(ram)))
    elif not machine.ports:
        yield passed("", f"locked memory is limited to {soft} bytes; no RDMA device needs more", evidence)
    elif IPC_LOCK in capabilities(machine.text(STATUS) or "") and machine.container:
        seen = Evidence(STATUS, "CapEff has IPC_LOCK")
        yield passed("", f"locked memory is limited to {soft} bytes, which IPC_LOCK lifts for this container", evidence, seen)
    elif IPC_LOCK in capabilities(machine.text(STATUS) or ""):
        yield warned("", f"locked memory is limited to {soft} bytes; root is exempt, jobs of other users are not", evidence, fix=ROW.fix)
    elif int(soft) < FEW:
        yield failed("", f"locked memory is limited to {soft} bytes: RDMA cannot register NCCL's buffers", evidence, fix=ROW.fix)
    else:
        yield warned("", f"locked memory is limited to {soft} bytes", evidence, fix=ROW.fix)


CHECK = Check(ROW, look)
