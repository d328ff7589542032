"""This process is a rank that an outer mpirun, srun or torchrun started."""

import contextlib
import os
import signal
import time
import traceback
from typing import NoReturn

import msgspec

from busbw.core.errors import BusbwError, TimedOut, UsageError
from busbw.core.exits import Exit
from busbw.core.reports import Report, Stalled
from busbw.core.spelling import option
from busbw.engines.registry import engine
from busbw.launch import interfaces, job
from busbw.launch.control import Control
from busbw.measure.job import AnyJob, SweepJob
from busbw.measure.watchdog import Reporter, Watchdog
from busbw.session.follow import RankFailed
from busbw.session.outside import limited
from busbw.session.rank import ask_nccl, chosen, failed, perform, watched
from busbw.session.sink import Sink
from busbw.session.where import Where

SAME_ERROR_S = 2.0  # for rank 0 to print an error that all ranks have
INTERRUPTED, TERMINATED = "interrupted", "terminated"  # why a result is not complete


def inside(asked: AnyJob, where: Where, sink: Sink) -> None:
    """Run the job as this rank; rank 0 records it. An error ends the job on all ranks."""
    from busbw.launch.join import join

    if where.ranks or where.hosts or where.hostfile or where.step:
        message = "-n, --hosts, --hostfile and --slurm start ranks, but this process is already a rank of a running job"
        raise UsageError(message, "leave them to the outer launcher")
    limits = limited(asked)
    if isinstance(limits, SweepJob) and limits.compat:
        limits = msgspec.structs.replace(limits, launch_limit_s=0.0)  # nccl-tests has no limit but -T
    watchdog = watched(limits, reporting(sink), code=sink.frontend.exit_of(TimedOut("")))
    try:
        watchdog.at("rendezvous")
        control = join({**os.environ, **interfaces.variables(where.ifname)}, expect=None)
        _as_rank(asked, control, sink, watchdog)
        control.close()
    finally:
        watchdog.stop()


def _as_rank(asked: AnyJob, control: Control, sink: Sink, watchdog: Watchdog) -> None:
    try:
        with job.terminable():
            work = chosen(asked, control, sink.take)
            if engine(work.engine).in_process:
                raise UsageError("the sim engine runs in one process", option("start_sim", 4))
            if isinstance(work, SweepJob) and work.compat:
                work = msgspec.structs.replace(work, gpus_per_process=work.sweep.nthreads * work.sweep.ngpus)
            ask_nccl(watchdog, work, control.process)
            perform(work, control, sink.take, watchdog.at)
    except BaseException as error:
        if control.processes > 1:
            abort_job(error, control, sink)
        raise


def reporting(sink: Sink) -> Reporter:
    """Reports each stall once, and after it the report of the communication library."""
    reported: set[int] = set()

    def report(found: Report) -> None:
        if not isinstance(found, Stalled):
            return
        if found.step in reported:
            sink.error(found.library)
            return
        reported.add(found.step)
        kept = sink.broke_off(f"{found.phase_text} made no progress")
        hint = "start with the rank of the lowest step: the others wait for it"
        sink.error(f"error: {found.message()}{f' ({kept})' if kept else ''}\n\nhint: {hint}")

    return report


def ended(error: SystemExit | KeyboardInterrupt, sink: Sink) -> tuple[str, int]:
    """Save what was measured when a signal arrived; returns the message and the exit code."""
    if isinstance(error, KeyboardInterrupt):
        reason, text, code = INTERRUPTED, INTERRUPTED, int(Exit.INTERRUPTED)
    else:  # SIGTERM or SIGHUP, sent by schedulers: the exit code contains the signal
        code = error.code if isinstance(error.code, int) else int(Exit.INTERRUPTED)
        name = signal.Signals(code - 128).name if code > 128 else f"exit {code}"
        reason, text = TERMINATED, f"{TERMINATED} ({name})"
    with job.undisturbed():
        kept = sink.broke_off(reason)
    return f"{text}{': ' + kept if kept else ''}", code


def abort_job(error: BaseException, control: Control, sink: Sink) -> NoReturn:
    """Save what was measured, report the error, and end the job on all ranks."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        text, code = ended(error, sink)
        sink.error(text)
        control.abort(code, text)
    known = error if isinstance(error, BusbwError) else RankFailed(failed(error, control))
    if known.exit == Exit.BUG:
        traceback.print_exception(error)
    with job.undisturbed():
        kept = sink.broke_off(known.message)
    if isinstance(error, UsageError) and control.process:
        time.sleep(SAME_ERROR_S)  # all ranks have the same error, and process 0 prints it and ends the others
    with contextlib.suppress(Exception):
        sink.error(known.render(sink.frontend.spelling) + (f"\n{kept}" if kept else ""))
    control.abort(sink.frontend.exit_of(known), known.message)
    os._exit(sink.frontend.exit_of(known))
