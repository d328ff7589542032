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
from busbw.core.rank_messages import Report, Stalled
from busbw.engines.registry import engine
from busbw.launch import interfaces, job
from busbw.launch.control import Control
from busbw.measure.job import Job, SweepJob
from busbw.measure.launch_plan import with_timeout
from busbw.measure.rank import ask_nccl, failure_report, perform, resolve_engine, start_watchdog
from busbw.measure.sink import Sink
from busbw.measure.supervise import RankFailed
from busbw.measure.target import Where
from busbw.measure.watchdog import Reporter, Watchdog

SAME_ERROR_S = 2.0  # for rank 0 to print an error that all ranks have
INTERRUPTED, TERMINATED = "interrupted", "terminated"  # why a result is not complete


def inside(requested_job: Job, where: Where, sink: Sink) -> None:
    """Run the job as this rank; rank 0 records it. An error ends the job on all ranks."""
    from busbw.launch.rendezvous import join

    if where.ranks or where.hosts or where.hostfile or where.step:
        message = (
            "-n, --hosts, --hostfile and --slurm start ranks, but this process is already a rank of"
            " a running job"
        )
        raise UsageError(message, "leave them to the outer launcher")
    limited_job = with_timeout(requested_job)
    if isinstance(limited_job, SweepJob) and limited_job.compat:
        # nccl-tests has no limit but -T
        limited_job = msgspec.structs.replace(limited_job, launch_limit_s=0.0)
    watchdog = start_watchdog(
        limited_job, reporting(sink), code=sink.frontend.exit_of(TimedOut(""))
    )
    try:
        watchdog.enter_phase("rendezvous")
        control = join({**os.environ, **interfaces.variables(where.ifname)}, expect=None)
        _as_rank(requested_job, control, sink, watchdog)
        watchdog.leave()
        control.close()
    finally:
        watchdog.stop()


def _as_rank(requested_job: Job, control: Control, sink: Sink, watchdog: Watchdog) -> None:
    try:
        with job.terminable():
            work = resolve_engine(requested_job, control, sink.take)
            if engine(work.engine).in_process:
                raise UsageError(
                    "the sim engine runs in one process",
                    "start it without mpirun: busbw run ... --engine sim -n 4",
                    options=["start_sim"],
                )
            if isinstance(work, SweepJob) and work.compat:
                work = msgspec.structs.replace(
                    work, gpus_per_process=work.sweep.nthreads * work.sweep.ngpus
                )
            ask_nccl(watchdog, work, control.process)
            perform(work, control, sink.take, watchdog.enter_phase)
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
        saved_note = sink.run_aborted(f"{found.phase_text} made no progress")
        hint = "look first at the rank that is at the lowest step; the others are waiting for it"
        sink.error(
            f"error: {found.message()}{f' ({saved_note})' if saved_note else ''}\n\nhint: {hint}"
        )

    return report


def save_on_signal(error: SystemExit | KeyboardInterrupt, sink: Sink) -> tuple[str, int]:
    """Save what was measured when a signal arrived; returns the message and the exit code."""
    if isinstance(error, KeyboardInterrupt):
        reason, text, code = INTERRUPTED, INTERRUPTED, int(Exit.INTERRUPTED)
    else:  # SIGTERM or SIGHUP, sent by schedulers: the exit code contains the signal
        code = error.code if isinstance(error.code, int) else int(Exit.INTERRUPTED)
        name = signal.Signals(code - 128).name if code > 128 else f"exit {code}"
        reason, text = TERMINATED, f"{TERMINATED} ({name})"
    with job.signals_ignored():
        saved_note = sink.run_aborted(reason)
    return f"{text}{': ' + saved_note if saved_note else ''}", code


def abort_job(error: BaseException, control: Control, sink: Sink) -> NoReturn:
    """Save what was measured, report the error, and end the job on all ranks."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        text, code = save_on_signal(error, sink)
        sink.error(text)
        control.abort(code, text)
    known = error if isinstance(error, BusbwError) else RankFailed(failure_report(error, control))
    if known.exit == Exit.BUG:
        traceback.print_exception(error)
    with job.signals_ignored():
        saved_note = sink.run_aborted(known.message)
    if isinstance(error, UsageError) and control.process:
        # all ranks have the same error, and process 0 prints it and ends the others
        time.sleep(SAME_ERROR_S)
    with contextlib.suppress(Exception):
        sink.error(sink.frontend.text_of(known) + (f"\n{saved_note}" if saved_note else ""))
    control.abort(sink.frontend.exit_of(known), known.message)
    os._exit(sink.frontend.exit_of(known))
