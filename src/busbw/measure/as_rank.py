"""A run in a process that an outer mpirun, srun or torchrun started as a rank."""

import contextlib
import os
import time
import traceback
from typing import NoReturn

import msgspec

from busbw.core.errors import BusbwError, Exit, TimedOut, UsageError
from busbw.core.rank_messages import Report, Stalled
from busbw.engines.registry import engine
from busbw.launch import interfaces
from busbw.launch.control import Control
from busbw.launch.rendezvous import join
from busbw.launch.signal_handlers import signals_ignored, terminable
from busbw.measure import nccl_library
from busbw.measure.job import Job, SweepJob, perform, with_timeout
from busbw.measure.rank import ask_nccl, failure_report, resolve_engine, start_watchdog
from busbw.measure.rank_failure import RankFailed
from busbw.measure.sink import Sink, save_on_signal
from busbw.measure.target import LaunchTarget
from busbw.measure.watchdog import Reporter, Watchdog

# nccl-tests has no limit but -T. More than the start of thousands of ranks takes
COMPAT_LAUNCH_LIMIT_S = 300.0
NOT_JOINED = (
    "a rank has not started, or a firewall is between hosts: busbw check launch --hosts h1:8,h2:8"
    " finds the first step that fails"
)
LOWEST_STEP = "look first at the rank that is at the lowest step; the others are waiting for it"
SAME_ERROR_S = 2.0  # for rank 0 to print an error that all ranks have


def run_as_rank(requested_job: Job, where: LaunchTarget, sink: Sink) -> None:
    """Run the job as this rank; rank 0 records it. An error ends the job on all ranks."""
    if where.ranks or where.hosts or where.hostfile or where.step:
        message = (
            "--ranks, --hosts, --hostfile and --slurm start ranks, but this process is already a"
            " rank of a running job"
        )
        raise UsageError(message, "leave them to the outer launcher")
    limited_job = with_timeout(requested_job)
    if isinstance(limited_job, SweepJob) and limited_job.compat:
        limited_job = msgspec.structs.replace(limited_job, launch_limit_s=COMPAT_LAUNCH_LIMIT_S)
    watchdog = start_watchdog(
        limited_job, stall_reporter(sink), code=sink.frontend.exit_of(TimedOut(""))
    )
    try:
        watchdog.enter_phase("rendezvous")
        nccl_library.load(requested_job.nccl)
        control = join({**os.environ, **interfaces.variables(where.ifname)}, expect=None)
        _perform_as_rank(requested_job, control, sink, watchdog)
        watchdog.leave()
        control.close()
    finally:
        watchdog.stop()


def _perform_as_rank(requested_job: Job, control: Control, sink: Sink, watchdog: Watchdog) -> None:
    try:
        with terminable():
            rank_job = resolve_engine(requested_job, control, sink.take)
            if engine(rank_job.engine).in_process:
                raise UsageError(
                    "the sim engine runs in one process",
                    "start it without mpirun: busbw run ... --engine sim -np 4",
                    options=["start_sim"],
                )
            if isinstance(rank_job, SweepJob) and rank_job.compat:
                gpus = rank_job.sweep.nthreads * rank_job.sweep.ngpus
                rank_job = msgspec.structs.replace(rank_job, gpus_per_process=gpus)
            ask_nccl(watchdog, rank_job, control.process)
            perform(rank_job, control, sink.take, watchdog.enter_phase)
    except BaseException as error:
        if control.processes > 1:
            abort_job(error, control, sink)
        raise


def stall_reporter(sink: Sink) -> Reporter:
    """A reporter that shows each stall once, and then the report of the communication library."""
    reported_steps: set[int] = set()

    def show(report: Report) -> None:
        if not isinstance(report, Stalled):
            return
        if report.step in reported_steps:
            sink.error(report.library)
            return
        reported_steps.add(report.step)
        saved_note = sink.run_aborted(f"{report.phase_text} made no progress")
        message = f"error: {report.message()}" + (f" ({saved_note})" if saved_note else "")
        hint = NOT_JOINED if report.phase == "rendezvous" else LOWEST_STEP
        sink.error(f"{message}\n\nhint: {hint}")

    return show


def abort_job(error: BaseException, control: Control, sink: Sink) -> NoReturn:
    """Save what was measured, report the error, and end the job on all ranks."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        text, code = save_on_signal(error, sink)
        sink.error(text)
        control.abort(code, text)
    if isinstance(error, BusbwError):
        reported = error
    else:
        reported = RankFailed(failure_report(error, control))
    if reported.exit == Exit.BUG:
        traceback.print_exception(error)
    with signals_ignored():
        saved_note = sink.run_aborted(reported.message)
    if isinstance(error, UsageError) and control.process:
        # All ranks have the same error. Process 0 prints it and ends the others.
        time.sleep(SAME_ERROR_S)
    with contextlib.suppress(Exception):
        sink.error(sink.frontend.text_of(reported) + (f"\n{saved_note}" if saved_note else ""))
    control.abort(sink.frontend.exit_of(reported), reported.message)
    os._exit(sink.frontend.exit_of(reported))
