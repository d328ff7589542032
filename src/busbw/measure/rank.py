"""The program that a launcher starts as every rank: join the others, run the job, and report from
rank 0.

Started as `python -m busbw.measure.rank JOB`.
"""

import logging
import os
import platform
import sys
import traceback
from collections.abc import Callable

import msgspec

from busbw.core import log
from busbw.core.errors import BusbwError, Exit, NoMeasurement, out_of_memory
from busbw.core.garbage import collect_seldom, leave_at_exit
from busbw.engines.registry import AUTO, choose
from busbw.host import process, ras
from busbw.host.source import Unavailable
from busbw.launch.control import Control
from busbw.launch.environment import detect
from busbw.measure import nccl_library
from busbw.measure.events import Emit, Event, Note, encode, write_report
from busbw.measure.job import Job, decode_job, perform
from busbw.measure.rank_failure import Failed, write_failure
from busbw.measure.watchdog import GRACE_S, Reporter, Watchdog, end_within

LOG = logging.getLogger("busbw.measure.rank")  # as a program its name is __main__
DAEMONS = ("prted", "orted")  # of Open MPI 5 and 4, on hosts other than the launching one
RAS_LIMIT_S = 3.0
RAS_CHARACTERS = 2000  # its summary comes first; the line must go through a pipe in one piece


def resolve_engine(job: Job, control: Control, emit: Emit) -> Job:
    """The job with `auto` replaced by the choice of process 0: the launching host may have no GPU.

    Collective.
    """
    if job.engine != AUTO:
        return job
    name = None
    if control.process == 0:
        row, note = choose(AUTO)
        name = row.name
        if note:
            emit(Note(f"note: {note}"))
    return msgspec.structs.replace(job, engine=control.bcast(name))


def start_watchdog(
    job: Job, report: Reporter, daemons: tuple[str, ...] = (), code: int = Exit.UNKNOWN
) -> Watchdog:
    """Start a watchdog for this process."""
    member = detect(os.environ)
    rank = member.rank if member else 0
    log.from_environment(rank)
    launcher = "no launcher"
    if member:
        launcher = f"rank {member.rank} of {member.size}, started by {member.launcher.name}"
    LOG.info(
        "%s; at most %g s without progress, %g s until the first operation (0: no limit)",
        launcher,
        job.limit_s,
        job.launch_limit_s,
    )
    dog = Watchdog(rank, job, report, daemons, code)
    ask_nccl(dog, job, rank)
    dog.start()
    return dog


def ask_nccl(dog: Watchdog, job: Job, rank: int) -> None:
    """Make process 0 query NCCL's RAS service when a limit passes.

    Called again once the engine is known.
    """
    if rank == 0 and job.engine == "nccl":
        dog.library = nccl_report


def nccl_report() -> str:
    """The report of NCCL's RAS service, or why there is none."""
    try:
        return ras.status(ras.address(), RAS_LIMIT_S)[:RAS_CHARACTERS]
    except Unavailable as error:
        return str(error)


def failure_report(error: BaseException, control: Control | None) -> Failed:
    rank, host = control.process if control else -1, platform.node()
    error = out_of_memory(error) or error
    if isinstance(error, BusbwError):
        kind, options = type(error).__name__, list(error.options)
        return Failed(error.message, error.hint, int(error.exit), rank, host, kind, options)
    if isinstance(error, KeyboardInterrupt):
        kind = NoMeasurement.__name__
        message, hint = "interrupted (SIGINT)", "start again"
        return Failed(message, hint, int(Exit.UNKNOWN), rank, host, kind)
    kind = type(error).__name__
    message, hint = f"a rank failed: {kind}: {error}", "please report this, with the lines above"
    return Failed(message, hint, int(Exit.BUG), rank, host, kind)


def fail(error: BaseException, control: Control | None) -> int:
    """Report why this rank ends, abort the job, and return the exit code."""
    report = failure_report(error, control)
    if report.exit == Exit.BUG:
        traceback.print_exception(error)
    write_failure(report)
    if control is not None and control.processes > 1:
        end_within(GRACE_S)
        control.abort(report.exit, report.message)
    return report.exit


def claim_stdout() -> Callable[[Event], None]:
    """Reserve stdout for events, and redirect all other output to it (NCCL_DEBUG) to stderr."""
    events = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def emit(event: Event) -> None:
        try:
            events.write(encode(event))
        except BrokenPipeError as error:
            raise NoMeasurement(
                "the process that reads the results has exited",
                "look for the busbw that started the ranks",
            ) from error

    return emit


def main(argv: list[str] | None = None) -> int:
    """Entry point of a launched rank."""
    from busbw.launch.rendezvous import join

    process.die_with_parent()
    emit = claim_stdout()
    job = decode_job((sys.argv[1:] if argv is None else argv)[0])
    control: Control | None = None
    try:
        dog = start_watchdog(job, write_report, DAEMONS)
        dog.enter_phase("rendezvous", "")
        nccl_library.load(job.nccl)  # before PyTorch, which may join the ranks
        control = join(dict(os.environ), expect=job.ranks // job.gpus_per_process or None)
        job = resolve_engine(job, control, emit)
        ask_nccl(dog, job, control.process)
        perform(job, control, emit, dog.enter_phase)
        dog.leave()
        control.close()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - ends the other ranks too
        return fail(error, control)
    return int(Exit.OK)


if __name__ == "__main__":
    collect_seldom()
    code = main()
    leave_at_exit()
    sys.exit(code)
