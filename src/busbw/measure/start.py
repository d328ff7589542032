"""One run from start to result.

It runs in this process if an outer mpirun, srun or torchrun started the process as a rank, or if
the engine runs in a single process. Otherwise a launcher starts its ranks. Each way imports only
what it needs.
"""

import contextlib
import os

import msgspec

from busbw.core.errors import BusbwError, NoMeasurement, UsageError
from busbw.core.masking import masked_words
from busbw.core.result import Outcome, Result
from busbw.engines.registry import choose, is_in_process, refuse_network
from busbw.launch import environment
from busbw.launch.control import SoloControl
from busbw.launch.signal_handlers import signals_ignored, terminable
from busbw.measure.job import Job, SweepJob, perform
from busbw.measure.sink import Sink, save_on_signal
from busbw.measure.target import LaunchTarget

SIMULATED_RANKS = 8


def run(job: Job, where: LaunchTarget, sink: Sink) -> Outcome | None:
    """Run the job and return its result; None on nonzero ranks of a job that mpirun, srun or
    torchrun started.

    What ends the run early is raised after the measurements are saved: BusbwError,
    KeyboardInterrupt, or SystemExit (SIGTERM, SIGHUP).
    """
    argv = masked_words([arg.encode("utf-8", "replace").decode() for arg in job.argv])
    job = msgspec.structs.replace(job, argv=argv, progress=sink.progress)
    is_rank = environment.detect(os.environ) is not None
    # Joining the others waits in a library, which only the default action of a signal ends:
    # `run_as_rank` adds handlers later.
    with contextlib.nullcontext() if is_rank else terminable():
        try:
            if is_rank:
                from busbw.measure.as_rank import run_as_rank

                run_as_rank(job, where, sink)
            elif is_in_process(job.engine):
                _run_in_process(job, where, sink)
            else:
                from busbw.measure.supervise import launch

                launch(job, where, sink)
        except (KeyboardInterrupt, SystemExit) as error:
            sink.note(save_on_signal(error, sink)[0])
            raise
        except BusbwError as error:
            with signals_ignored():
                saved_note = sink.run_aborted(error.message)
            error.add(f" ({saved_note})" if saved_note else "")
            raise
    if sink.record.problem:
        raise sink.record.problem
    result = sink.record.result
    needs_rows = type(job) is SweepJob and not job.compat
    if isinstance(result, Result) and result.complete and not result.rows and needs_rows:
        raise NoMeasurement("no size was measured", "the notes say what was skipped, and why")
    return result


def _run_in_process(job: Job, where: LaunchTarget, sink: Sink) -> None:
    where.check()
    if where.hosts or where.hostfile or where.step:
        raise UsageError(
            f"engine {job.engine} runs in this process and starts no ranks on hosts",
            "leave out --hosts, --hostfile and --slurm",
        )
    refuse_network(job.net, job.engine)
    if not isinstance(job, SweepJob):
        message = (
            f"{job.program} needs one process per rank, and engine {job.engine} has one for all"
        )
        raise NoMeasurement(message, "use --engine torch", options=["engine"])
    ranks = where.ranks or job.sweep.nthreads * job.sweep.ngpus
    if ranks == 1 and where.ranks is None and not job.compat:
        ranks = SIMULATED_RANKS
    row, _ = choose(job.engine)
    job = msgspec.structs.replace(job, engine=row.name, gpus_per_process=ranks)
    perform(job, SoloControl(), sink.take)
