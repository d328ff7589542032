"""The limit of a user's processes and threads."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, unread
from busbw.check.limits.processes import LEAST_THREADS, PATH, limit, threads_needed
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.settings import UNLIMITED

NAME = "Max processes"

ROW = CheckRow(
    id="BW133",
    name="process-count",
    layer=Layer.LIMITS,
    title="per-user limit of processes and threads",
    right=f"2 x GPUs x CPUs, and {LEAST_THREADS} or more",
    why="A rank may start a thread for each CPU (OpenMP), in addition to those of NCCL and data loaders. Above the limit threads fail to "
    "start.",
    fix="ulimit -u {least}",
    stays="in /etc/security/limits.conf (* - nproc unlimited); for services LimitNPROC=infinity",
    reads=(PATH, "/sys/devices/system/cpu/online"),
    sources=("getrlimit(2): RLIMIT_NPROC", "libgomp manual, OMP_NUM_THREADS"),
)


def look(machine: Machine) -> Iterator[Found]:
    """The soft limit of this process, which ranks started from the same shell inherit."""
    reading, soft = limit(machine, NAME)
    if soft is None:
        yield unread("", reading, "the limits of this process")
        return
    least = threads_needed(machine)
    yield judged(
        right=soft == UNLIMITED or int(soft) >= least,
        subject="",
        good=f"a user may have {soft} processes and threads",
        bad=f"a user may have {soft} processes and threads; the ranks of this machine may need {least}",
        evidence=(Evidence(PATH, f"{NAME} {soft}", f"{least} or more"),),
        fix=filled(ROW.fix, least=least),
    )


CHECK = Check(ROW, look)
