"""The stack size limit."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, unread
from busbw.check.limits.processes import PATH, limit
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.settings import UNLIMITED

NAME = "Max stack size"
LEAST = 8 << 20

ROW = CheckRow(
    id="BW132",
    name="stack",
    layer=Layer.LIMITS,
    title="stack size limit",
    right="8 MiB or more, but not unlimited",
    why="With unlimited, glibc gives threads stacks of only 2 MiB. NCCL before 2.28 may then crash during its topology search.",
    fix="ulimit -s 8192",
    stays="remove stack from /etc/security/limits.conf; for services LimitSTACK=8M; for containers --ulimit stack=8388608",
    reads=(PATH,),
    sources=("NCCL user guide, troubleshooting: stack size", "pthread_create(3)"),
)


def look(machine: Machine) -> Iterator[Found]:
    """The soft limit of this process, which ranks started from the same shell inherit."""
    reading, soft = limit(machine, NAME)
    if soft is None:
        yield unread("", reading, "the limits of this process")
        return
    yield judged(
        right=soft != UNLIMITED and int(soft) >= LEAST,
        subject="",
        good=f"the stack is limited to {soft} bytes",
        bad="the stack is unlimited: threads get 2 MiB" if soft == UNLIMITED else f"the stack is limited to {soft} bytes",
        evidence=(Evidence(PATH, f"{NAME} {soft}", f"{LEAST} bytes"),),
        fix=ROW.fix,
    )


CHECK = Check(ROW, look)
