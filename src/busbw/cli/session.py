"""One run from the caller's side: in this process when it is a rank already, else through a launcher whose rank 0 tells the story."""

import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from busbw.cli.follow import Follower, RankFailed, follow
from busbw.cli.output import Output
from busbw.cli.streams import answer, talk
from busbw.core.errors import BusbwError, NoMeasurement, TimedOut, UsageError
from busbw.core.exits import Exit
from busbw.core.reports import Report, Stalled
from busbw.core.sweep import roots
from busbw.engines.base import Control
from busbw.engines.registry import AUTO, EngineRow, choose, cpu_ranks, engine, gpu_count, refuse_network, torch_gpus
from busbw.engines.sim_parameters import parse_parameters
from busbw.host import net_plugin
from busbw.launch import environment, hosts, interfaces, job, mpirun, slurm, torchrun
from busbw.measure.job import Job, encode
from busbw.measure.rank import ask_library, failed, measure, watched
from busbw.measure.watchdog import Tell, Watchdog

RANK_PROGRAM, TRAIN_PROGRAM = "busbw.measure.rank", "busbw.train.rank"
RANKS_A_CORE = 16
SIMULATED_RANKS = 8
SAME_WORDS_S = 2.0
INTERRUPTED, TERMINATED = "interrupted", "terminated"  # why a result is not complete
HOSTS_OWN = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")  # each host's own business
FORWARDED = (
    "NCCL_",
    "BUSBW_",
    "CUDA_",
    "UCX_",
    "FI_",
    "GLOO_",
    "TORCH_NCCL_",
    "OMP_NUM_THREADS",
    "OMPI_MCA_",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
)


@dataclass(frozen=True, slots=True)
class Where:
    """Where the ranks are to run, as asked for."""

    ranks: int | None = None
    hosts: str = ""
    hostfile: Path | None = None
    ifname: str = ""
    engine: str = "auto"
    simulation: str = ""
    dry_run: bool = False
    launch_limit_s: float = 120.0
    step: slurm.Step | None = None
    limit_s: float = 0.0


class TooFewGpus(NoMeasurement):
    """More GPUs asked for than there are, in the words of nccl-tests."""

    def __init__(self, asked: int, present: int) -> None:
        super().__init__(
            f"Invalid number of GPUs: {asked} requested but only {present} were found.", f"ask for at most {present}, or name more --hosts"
        )


@dataclass(frozen=True, slots=True)
class Face:
    """How a command line tells errors: its exit codes, and its words on stderr."""

    exit_of: Callable[[BusbwError], int]
    render: Callable[[BusbwError], str]


OWN = Face(lambda error: int(error.exit), BusbwError.render)


def run_job(work: Job, where: Where, output: Output, face: Face = OWN) -> int:
    """Run it, print it, and return the exit code: 0 fine, 1 wrong data. Errors are raised after saving what was measured."""
    work = msgspec.structs.replace(work, argv=[word.encode("utf-8", "replace").decode() for word in work.argv])
    # A rank waits in calls of its library, which only the signals' own effect ends: see `inside`.
    with contextlib.nullcontext() if environment.detect(os.environ) else job.terminable():
        return _kept(work, where, output, face)


def _kept(work: Job, where: Where, output: Output, face: Face) -> int:
    """Run it; what was measured is saved however it ends, whoever presses Ctrl-C again meanwhile."""
    try:
        _run(work, where, output, face)
    except KeyboardInterrupt:
        kept = _broke_off(output, INTERRUPTED)
        talk(f"interrupted{': ' + kept if kept else ''}")
        return int(Exit.INTERRUPTED)
    except SystemExit as error:  # SIGTERM or SIGHUP, as schedulers end jobs
        kept = _broke_off(output, TERMINATED)
        talk(f"{_terminated(error)}{': ' + kept if kept else ''}")
        raise
    except BusbwError as error:
        kept = _broke_off(output, error.message)
        error.message += f" ({kept})" if kept else ""
        raise
    if output.record.problem:
        raise output.record.problem
    result = output.record.result
    if result.complete and not (result.rows or result.training or work.compat):
        raise NoMeasurement("no size was measured", "the notes above say what was left out, and why")
    return int(Exit.BAD if result.wrong() else Exit.OK)


def _broke_off(output: Output, reason: str) -> str:
    with job.undisturbed():
        return output.broke_off(reason)


def _run(work: Job, where: Where, output: Output, face: Face) -> None:
    if environment.detect(os.environ) is not None:
        inside(work, where, output, face)
        return
    if where.step:
        outside_by_slurm(where.step, work, where, output)
        return
    away = bool(where.hosts or where.hostfile) and where.engine != "auto"
    # An engine named for other hosts need not run on the one that launches.
    row, missing = (engine(where.engine), "") if away else choose(where.engine)
    refuse_network(work.net, row.name)
    if not row.in_process:
        outside(row, missing, work, where, output)
    elif where.dry_run or where.hosts or where.hostfile:
        raise UsageError(f"engine {row.name} runs in this process: it starts nothing and knows no hosts", "leave out --hosts and --dry-run")
    else:
        _in_process(row, work, where, output)


def inside(work: Job, where: Where, output: Output, face: Face) -> None:
    """This process is a rank that an outer mpirun, srun or torchrun started."""
    from busbw.launch.control import join

    if where.hosts or where.hostfile or where.ranks or where.step:
        raise UsageError(
            "-n, --hosts, --hostfile and --slurm start ranks, but this process is a rank of a running job already",
            "leave them to the outer launcher",
        )
    dog = _watched(work, where, output, face)
    dog.at("rendezvous")
    control = join({**os.environ, **interfaces.variables(where.ifname)}, expect=None)
    try:
        with job.terminable():
            name = where.engine if where.engine != "auto" else control.bcast(choose("auto")[0].name if control.rank == 0 else None)
            if engine(name).in_process:
                raise UsageError("the sim engine runs in one process", "start it without mpirun: busbw run ... --engine sim -n 4")
            gpus = work.sweep.nthreads * work.sweep.ngpus if work.compat else 1
            chosen = msgspec.structs.replace(work, engine=name, gpus_per_process=gpus)
            ask_library(dog, chosen, control.rank)
            if work.training:
                from busbw.train.rank import train

                train(chosen, control, output.take, dog.at)
            else:
                measure(chosen, control, output.take, dog.at)
    except BaseException as error:
        if control.size > 1:
            leave(error, control, output, face)
        raise
    control.close()
    dog.stop()


def _watched(work: Job, where: Where, output: Output, face: Face) -> Watchdog:
    """Under an outer launcher every rank tells people itself that it stands still, and ends; the compat face does so where -T is given."""
    asked = limited(msgspec.structs.replace(work, engine=where.engine), where)
    if work.compat:
        asked = msgspec.structs.replace(asked, start_limit_s=0.0)

    return watched(asked, telling(output), code=face.exit_of(TimedOut("")))


def _terminated(error: SystemExit) -> str:
    """`terminated (SIGTERM)`: the exit code holds the signal."""
    return f"{TERMINATED} ({signal.Signals(int(error.code or 0) - 128).name})"


def telling(output: Output) -> Tell:
    """Tells people once of each place where this rank stands still, and then what the library says of it."""
    told: set[int] = set()

    def tell(report: Report) -> None:
        if not isinstance(report, Stalled):
            return
        if report.step in told:
            talk(report.library)
            return
        told.add(report.step)
        kept = output.broke_off(f"{report.place} made no progress")
        talk(f"error: {report.words()}{f' ({kept})' if kept else ''}\n\nhint: look first at the rank of the lowest step")

    return tell


def leave(error: BaseException, control: Control, output: Output, face: Face) -> None:
    """Save what was measured, say why, and end the job on all ranks; does not return."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        by_hand = isinstance(error, KeyboardInterrupt)
        kept = _broke_off(output, INTERRUPTED if by_hand else TERMINATED)
        words = _terminated(error) if isinstance(error, SystemExit) else INTERRUPTED
        talk(f"{words}{': ' + kept if kept else ''}")
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else int(Exit.INTERRUPTED)
        control.abort(code, words)
    told = error if isinstance(error, BusbwError) else RankFailed(failed(error, control))
    kept = _broke_off(output, told.message)
    if isinstance(error, UsageError) and control.rank:
        time.sleep(SAME_WORDS_S)  # the same on all ranks: process 0 says it, and ends the others meanwhile
    talk(face.render(told) + (f"\n{kept}" if kept else ""))
    control.abort(face.exit_of(told), told.message)


def _in_process(row: EngineRow, work: Job, where: Where, output: Output) -> None:
    from busbw.launch.control import SoloControl

    ranks = where.ranks or work.sweep.nthreads * work.sweep.ngpus
    if ranks == 1 and where.ranks is None and not work.compat:
        ranks = SIMULATED_RANKS
    prepared = msgspec.structs.replace(work, engine=row.name, gpus_per_process=ranks, simulation=parse_parameters(where.simulation))
    measure(prepared, SoloControl(), output.take)


def outside(row: EngineRow, missing: str, work: Job, where: Where, output: Output) -> None:
    """Start the ranks and follow what rank 0 tells; `missing` is why GPUs are not used."""
    places = hosts.read_hostfile(str(where.hostfile)) if where.hostfile else hosts.parse_hosts(where.hosts) if where.hosts else ()
    if places:
        # Hosts of one job are alike as a rule: what is not said is taken from this one.
        places = hosts.share(places, where.ranks, gpu_count() if row.name == "nccl" and row.availability() is None else 1)
    else:
        net_plugin.variables(work.net)  # every rank looks for the plugin itself; here a missing one is told before any is started
    ranks = sum(place.slots for place in places) or where.ranks or local_ranks(row, work)
    if row.name == "nccl" and not places and ranks > gpu_count():
        raise TooFewGpus(ranks, gpu_count())
    most = RANKS_A_CORE * (os.cpu_count() or 1)
    if row.name != "nccl" and not places and ranks > most:
        raise UsageError(f"-n {ranks}: more than {RANKS_A_CORE} ranks a core of this machine", "-n counts ranks; iterations are --iters")
    roots(work.sweep, ranks)
    prepared = limited(msgspec.structs.replace(work, engine=row.name, ranks=ranks), where)
    # Local ranks inherit the environment; those of other hosts get what steers communication.
    forwarded = {name: value for name, value in os.environ.items() if places and name.startswith(FORWARDED) and name not in HOSTS_OWN}
    program = rank_program(prepared)
    argv = launcher_command(row, program, ranks, places, where, forwarded)
    if where.dry_run:
        answer(shlex.join(argv) + "\n")
        return
    if missing:
        talk(f"note: measuring on CPUs: {missing}")
    follow(argv, where.launch_limit_s, lambda: Follower(prepared, output, places, where.ifname))


def rank_program(work: Job) -> list[str]:
    """What a launcher starts."""
    return [sys.executable, "-m", TRAIN_PROGRAM if work.training else RANK_PROGRAM, encode(work)]


def limited(work: Job, where: Where) -> Job:
    """The job with its limits. -T is one for engines that block in their libraries, where a poll for it cannot look in."""
    blocking = work.engine in ("mpi", "torch", AUTO)
    limit_s = float(work.sweep.timeout) if blocking and work.sweep.timeout else where.limit_s
    return msgspec.structs.replace(work, limit_s=limit_s, start_limit_s=where.launch_limit_s)


def outside_by_slurm(asked: slurm.Step, work: Job, where: Where, output: Output) -> None:
    """Start the ranks with srun. What the engine `auto` is, they decide: a login node has no GPUs."""
    row = engine(where.engine) if where.engine != AUTO else None
    if row and row.in_process:
        raise UsageError(f"engine {row.name} runs in this process: it starts nothing", "leave out --slurm")
    if row:
        refuse_network(work.net, row.name)
    step = slurm.settle(asked, os.environ)
    roots(work.sweep, step.ranks or 1)
    prepared = limited(msgspec.structs.replace(work, engine=where.engine, ranks=step.ranks or 0), where)
    program = rank_program(prepared)
    argv = slurm.command(slurm.find(), program, step, where.ifname, os.environ)
    if where.dry_run:
        answer(shlex.join(argv) + "\n")
        return
    follow(argv, where.launch_limit_s, lambda: Follower(prepared, output, ifname=where.ifname))


def launcher_command(
    row: EngineRow, program: list[str], ranks: int, places: tuple[hosts.Host, ...], where: Where, forwarded: dict[str, str]
) -> list[str]:
    """mpirun's line, or torchrun's for local PyTorch ranks where there is no MPI."""
    try:
        found = mpirun.find()
    except NoMeasurement:
        if row.name != "torch" or places:
            raise
        return torchrun.command(program, ranks)
    return mpirun.command(found, program, ranks, places, where.ifname, forwarded)


def local_ranks(row: EngineRow, work: Job) -> int:
    """Ranks on this machine when nobody said how many: those the compat face asked for, all GPUs, or two CPU ranks."""
    if work.compat:
        return work.sweep.nthreads * work.sweep.ngpus
    if row.name == "nccl":
        return gpu_count()
    return (torch_gpus() if row.name == "torch" else 0) or cpu_ranks()
