"""The watchdog of a rank, with the report of NCCL's RAS service."""

import os

from busbw.core.exits import Exit
from busbw.host import ras
from busbw.host.source import Unavailable
from busbw.launch.environment import detect
from busbw.measure.job import AnyJob
from busbw.measure.watchdog import Reporter, Watchdog

DAEMONS = ("prted", "orted")  # of Open MPI 5 and 4, on hosts other than the launching one
RAS_LIMIT_S = 3.0
RAS_CHARACTERS = 2000  # its summary comes first; the line must go through a pipe in one piece


def watched(job: AnyJob, report: Reporter, daemons: tuple[str, ...] = (), code: int = Exit.UNKNOWN) -> Watchdog:
    """Start a watchdog for this process."""
    member = detect(os.environ)
    rank = member.rank if member else 0
    dog = Watchdog(rank, job, report, daemons, code)
    ask_nccl(dog, job, rank)
    dog.start()
    return dog


def ask_nccl(dog: Watchdog, job: AnyJob, rank: int) -> None:
    """Make process 0 query NCCL's RAS service when a limit passes. Called again once the engine is known."""
    if rank == 0 and job.engine == "nccl":
        dog.library = nccl_report


def nccl_report() -> str:
    """The report of NCCL's RAS service, or why there is none."""
    try:
        return ras.status(ras.address(), RAS_LIMIT_S)[:RAS_CHARACTERS]
    except Unavailable as error:
        return str(error)
