"""One run: in this process if it is already a rank or the engine needs no others, otherwise
through a launcher.
"""

import contextlib
import os

import msgspec

from busbw.core.errors import BusbwError, NoMeasurement
from busbw.core.masking import masked_words
from busbw.core.result import Outcome, Result
from busbw.engines.registry import choose
from busbw.launch import environment, job
from busbw.launch.control import SoloControl
from busbw.measure.in_rank import inside, save_on_signal
from busbw.measure.job import Job, SweepJob
from busbw.measure.launch_plan import launcher_command
from busbw.measure.rank import perform
from busbw.measure.sink import Sink
from busbw.measure.supervise import Follower, follow
from busbw.measure.target import Where

SIMULATED_RANKS = 8


def run(work: Job, where: Where, sink: Sink) -> Outcome | None:
    """Run the job and return its result: None on nonzero ranks of a job that mpirun, srun or
    torchrun started.

    What ends the run early is raised after the measurements are saved: BusbwError,
    KeyboardInterrupt, or SystemExit (SIGTERM, SIGHUP).
    """
    argv = masked_words([arg.encode("utf-8", "replace").decode() for arg in work.argv])
    work = msgspec.structs.replace(work, argv=argv, progress=sink.progress)
    rank = environment.detect(os.environ) is not None
    # Joining the others waits in a library, which only the default action of a signal ends:
    # `inside` adds handlers later.
    with contextlib.nullcontext() if rank else job.terminable():
        try:
            (inside if rank else _start)(work, where, sink)
        except (KeyboardInterrupt, SystemExit) as error:
            sink.note(save_on_signal(error, sink)[0])
            raise
        except BusbwError as error:
            with job.signals_ignored():
                saved_note = sink.run_aborted(error.message)
            error.add(f" ({saved_note})" if saved_note else "")
            raise
    if sink.record.problem:
        raise sink.record.problem
    result = sink.record.result
    expected = type(work) is SweepJob and not work.compat
    if isinstance(result, Result) and result.complete and not result.rows and expected:
        raise NoMeasurement("no size was measured", "the notes say what was skipped, and why")
    return result


def _start(work: Job, where: Where, sink: Sink) -> None:
    prepared = launcher_command(work, where)
    if prepared is None:
        _in_process(work, where, sink)
        return
    if prepared.note:
        sink.note(prepared.note)
    follow(prepared.argv, prepared.job.launch_limit_s, lambda: Follower(prepared, sink))


def _in_process(work: Job, where: Where, sink: Sink) -> None:
    if not isinstance(work, SweepJob):
        message = "training needs one process per rank, but this engine runs all ranks in one"
        raise NoMeasurement(message, "use --engine torch", options=["engine"])
    ranks = where.ranks or work.sweep.nthreads * work.sweep.ngpus
    if ranks == 1 and where.ranks is None and not work.compat:
        ranks = SIMULATED_RANKS
    perform(
        msgspec.structs.replace(work, engine=choose(work.engine)[0].name, gpus_per_process=ranks),
        SoloControl(),
        sink.take,
    )
