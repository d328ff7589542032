"""The watchdog of a rank, and NCCL's own report for it."""

import os

from busbw.core.exits import Exit
from busbw.host import ras
from busbw.host.source import Unavailable
from busbw.launch.environment import detect
from busbw.measure.job import AnyJob
from busbw.measure.watchdog import Tell, Watchdog

DAEMONS = ("prted", "orted")  # of Open MPI 5 and 4, on hosts other than the launching one
RAS_LIMIT_S = 3.0
RAS_CHARACTERS = 2000  # its summary comes first; the line must go through a pipe in one piece


def watched(job: AnyJob, tell: Tell, daemons: tuple[str, ...] = (), code: int = Exit.UNKNOWN) -> Watchdog:
    """A watchdog that watches this process from now on."""
    member = detect(os.environ)
    rank = member.rank if member else 0
    dog = Watchdog(rank, job.limit_s, job.start_limit_s, tell, daemons=daemons, code=code, progress=job.progress)
    ask_nccl(dog, job, rank)
    dog.start()
    return dog


def ask_nccl(dog: Watchdog, job: AnyJob, rank: int) -> None:
    """Have process 0 of a job on NCCL ask NCCL's RAS service when a limit passes. Called again once the engine is chosen."""
    if rank == 0 and job.engine == "nccl":
        dog.library = nccl_report


def nccl_report() -> str:
    """The report of NCCL's RAS service, or why there is none."""
    try:
        return ras.status(ras.address(), RAS_LIMIT_S)[:RAS_CHARACTERS]
    except Unavailable as error:
        return str(error)
