"""What every rank runs: join the others, open the engine, measure, and tell the story from rank 0.

Started as `python -m busbw.measure.rank JOB` by a launcher, or called in the process of the command line under an outer mpirun.
"""

import os
import platform
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

import msgspec

from busbw import __version__
from busbw.core.env import ALLTOALLV, carried
from busbw.core.errors import BusbwError, NoMeasurement, UsageError
from busbw.core.exits import Exit
from busbw.core.groups import color
from busbw.core.result import SCHEMA, Device, Result, World
from busbw.core.sweep import roots, series
from busbw.core.topology import Host, Topology
from busbw.engines.base import Control, Engine
from busbw.engines.registry import AUTO, Opening, choose, engine
from busbw.host import process, ras
from busbw.host.read import read_host
from busbw.host.source import Unavailable
from busbw.launch.environment import detect
from busbw.measure import inject, network, plan
from busbw.measure.events import At, Emit, Ended, Event, Failed, Note, Started, encode, say, say_failed
from busbw.measure.host_sampler import HostSampler
from busbw.measure.job import Job, decode
from busbw.measure.runner import Runner, now
from busbw.measure.watchdog import Tell, Watchdog
from busbw.model.bounds import given
from busbw.model.world import ideals

GPU_PRECISION, CPU_PRECISION = 0.01, 0.05
DAEMONS = ("prted", "orted")  # of Open MPI 5 and 4, on hosts other than the launching one
RAS_LIMIT_S = 3.0
RAS_CHARACTERS = 2000  # its summary comes first; the line must go through a pipe in one piece


@dataclass(slots=True)
class Party:
    """Who is there: the whole job, this process' group, its place on its host, and the groups in all."""

    job: Control
    group: Control
    color: int
    groups: int
    local: int


def measure(job: Job, control: Control, emit: Emit, at: At = lambda *_: None) -> None:
    """Run the whole job on this process; `emit` is called on process 0 alone, `at` told each place the process comes to."""
    party = join_groups(control)
    row = engine(job.engine)
    if job.engine == "mpi" and job.gpus_per_process > 1:
        ranks = control.size * job.gpus_per_process
        raise NoMeasurement(
            f"-t and -g ask for {job.gpus_per_process} ranks a process, and a CPU rank is a process of its own",
            f"mpirun -np {ranks}, without -t and -g",
        )
    opening = Opening(party.group, job.sweep, control.rank, party.local, party.color, job.gpus_per_process, job.simulation)
    repeats = job.sweep.sampling.repeats if job.sweep.sampling else 1
    for repeat in range(repeats):
        at("init", job.engine)
        with network.starting(job, control) as log:
            opened = row.open(opening)
        job = settled(job, opened)
        try:
            ended = sweep(job, party, opened, emit, at, repeat, log.networks)
            at("teardown", "")
            if control.rank == 0 and repeat == repeats - 1:
                emit(ended)
        except BaseException as error:
            told = opened.explained(error) if isinstance(error, Exception) else error
            opened.close(abort=True)
            if told is not error:
                raise told from error
            raise
        opened.close()


def settled(job: Job, opened: Engine) -> Job:
    """The job with a precision: where none was asked for, what such ranks can reach; those on CPUs share them with all else."""
    sampling = job.sweep.sampling
    if sampling is None or sampling.precision:
        return job
    sampling = msgspec.structs.replace(sampling, precision=GPU_PRECISION if opened.queued else CPU_PRECISION)
    return msgspec.structs.replace(job, sweep=msgspec.structs.replace(job.sweep, sampling=sampling))


def sweep(job: Job, party: Party, opened: Engine, emit: Emit, at: At, repeat: int, heard: Sequence[str]) -> Ended:
    """The whole sweep on communicators just made, and what there is to tell at its end; `heard` are the networks NCCL named meanwhile."""
    first = party.job.rank == 0 and repeat == 0
    last = repeat == (job.sweep.sampling.repeats if job.sweep.sampling else 1) - 1
    late_s = inject.delay_s(inject.parse(job.inject), opened, party.job.rank, party.job.size)
    at("prepare", "")
    result, max_bytes = prepare(job, party, opened)
    result.library.network = network.agreed(job, party.job, result.library, heard)
    if first:
        emit(Started(result))
        for note in filter(None, [network.unconfirmed(job, result.library.network)]):
            emit(Note(note))
    _summarise_alltoallv(job, opened, max_bytes, emit if first else None)
    with closing(HostSampler(own_devices(job, party, result))) as host_sampler:
        runner = Runner(opened, party.job, party.group, job.sweep, max_bytes, emit, at, late_s, host_sampler, repeat)
        runner.sweep()
        links = runner.links(result.world.devices) if last else []
    return Ended(now(), opened.memory_use() if job.sweep.memory else {}, links)


def join_groups(control: Control) -> Party:
    """Split the job by NCCL_TESTS_SPLIT and find each process' number on its host."""
    wanted = color(control.rank, os.environ)
    everyone = control.allgather((platform.node(), wanted))
    local = sum(host == platform.node() for host, _ in everyone[: control.rank])
    colors = sorted({one for _, one in everyone})
    group = control.split(wanted) if len(colors) > 1 else control
    return Party(control, group, wanted, len(colors), local)


def refuse_out_of_step(job: Job, sizes: set[int]) -> None:
    """UsageError where groups of different sizes would run different sweeps, and wait for each other for ever."""
    spec = job.sweep
    every_root = spec.row.rooted and spec.root.strip().lower() in ("all", "-1")
    if len(sizes) > 1 and (every_root or spec.row.ranks_power_of_two):
        what = f"{spec.collective} with every root" if every_root else spec.collective
        found = ", ".join(map(str, sorted(sizes)))
        raise UsageError(
            f"NCCL_TESTS_SPLIT makes groups of {found} ranks, and {what} takes a different sweep in each", "split into equal groups"
        )


def prepare(job: Job, party: Party, opened: Engine) -> tuple[Result, int]:
    """Agree on the largest size, make the buffers, and gather what the result says of the world. The same on all processes."""
    roots(job.sweep, opened.size)
    refuse_out_of_step(job, set(party.job.allgather(opened.size)))
    memory = [size for size in party.job.allgather(opened.memory_bytes()) if size is not None]
    max_bytes = plan.capped_max(job.sweep, min(memory, default=None))
    size = plan.buffer_bytes(job.sweep, max_bytes)
    opened.allocate(size, size)
    result = begun(job, party, opened)
    best, endpoint = ideals(job.sweep.collective, result.world, result.topology, result.environment)
    if job.ideal:
        best = endpoint = given(job.ideal)
    result.reduced_max_bytes = max_bytes if max_bytes < job.sweep.max_bytes else None
    result.ideal, result.endpoint_ideal = best, endpoint
    return result, max_bytes


def begun(job: Job, party: Party, opened: Engine) -> Result:
    """What a result says before anything is measured: the call, the library, the ranks, and every host's hardware. Collective."""
    devices: list[Device] = [device for some in party.job.allgather(opened.devices()) for device in some]
    return Result(
        schema=SCHEMA,
        tool=f"busbw {__version__}",
        spec=job.sweep,
        argv=job.argv,
        program=job.program,
        start=now(),
        library=opened.library(),
        world=World(devices, party.job.size, party.groups),
        topology=read_topology(party),
        environment=carried(os.environ, all_names=job.compat),
    )


def own_devices(job: Job, party: Party, result: Result) -> list[Device]:
    """The devices of this host, for the one process of it that samples the host during precise timing; [] for all others."""
    if party.local != 0 or job.sweep.sampling is None:
        return []
    return [device for device in result.world.devices if device.host == platform.node()]


def read_topology(party: Party) -> Topology:
    """Every host's hardware, read once a host."""
    mine: Host | None = read_host() if party.local == 0 else None
    return Topology([host for host in party.job.allgather(mine) if host is not None])


def _summarise_alltoallv(job: Job, opened: Engine, max_bytes: int, emit: Emit | None) -> None:
    if emit is None or not job.sweep.row.uneven or os.environ.get(ALLTOALLV.print_summary, "0") in ("", "0"):
        return
    calls = plan.Calls(job.sweep, next(series(job.sweep, opened.size)), opened.size)
    for rank, row in enumerate(calls.matrix_bytes(max_bytes)):
        emit(Note(f"# rank {rank} sends {sum(row)} bytes: {' '.join(map(str, row))}", answer=True))


def chosen(job: Job, control: Control, emit: Emit) -> Job:
    """The job with its engine: process 0 chooses `auto` for all, where the host that launched could not (a login node has no GPUs)."""
    if job.engine != AUTO:
        return job
    name, missing = control.bcast(_choice() if control.rank == 0 else None)
    if missing and control.rank == 0:
        emit(Note(f"note: measuring on CPUs: {missing}"))
    return msgspec.structs.replace(job, engine=name)


def _choice() -> tuple[str, str]:
    row, missing = choose(AUTO)
    return row.name, missing


def failed(error: BaseException, control: Control | None) -> Failed:
    """What to tell of an error that ended this rank."""
    rank, host = control.rank if control else -1, platform.node()
    if isinstance(error, BusbwError):
        return Failed(error.message, error.hint, int(error.exit), rank, host, type(error).__name__)
    if isinstance(error, KeyboardInterrupt):
        return Failed("interrupted", "somebody sent this rank SIGINT: start again", int(Exit.UNKNOWN), rank, host, NoMeasurement.__name__)
    what = f"a rank failed: {type(error).__name__}: {error}"
    return Failed(what, "please report this, with the lines above", int(Exit.BUG), rank, host, type(error).__name__)


def fail(error: BaseException, control: Control | None) -> int:
    """Say why this rank gives up, end the job, and return the exit code."""
    told = failed(error, control)
    if told.exit == Exit.BUG:
        traceback.print_exception(error)
    say_failed(told)
    if control is not None and control.size > 1:
        control.abort(told.exit, told.message)
    return told.exit


def claim_stdout() -> Callable[[Event], None]:
    """Keep stdout for events: whatever else writes to it (NCCL_DEBUG) goes to stderr from now on."""
    own = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def emit(event: Event) -> None:
        try:
            own.write(encode(event))
        except BrokenPipeError as error:
            raise NoMeasurement("nobody reads the results any more", "the launching busbw was stopped") from error

    return emit


def watched(job: Job, tell: Tell, daemons: tuple[str, ...] = (), code: int = Exit.UNKNOWN) -> Watchdog:
    """A watchdog that has begun to watch this process; rank 0 of a job on NCCL also asks NCCL what it knows."""
    member = detect(os.environ)
    rank = member.rank if member else 0
    dog = Watchdog(rank, job.limit_s, job.start_limit_s, tell, daemons=daemons, code=code)
    ask_library(dog, job, rank)
    dog.start()
    return dog


def ask_library(dog: Watchdog, job: Job, rank: int) -> None:
    """Have process 0 ask NCCL what it knows when a limit passes, where the job runs on NCCL: told again once the engine is chosen."""
    if rank == 0 and job.engine == "nccl":
        dog.library = nccl_says


def nccl_says() -> str:
    """The report of NCCL's RAS service, or why there is none."""
    try:
        return ras.status(ras.address(), RAS_LIMIT_S)[:RAS_CHARACTERS]
    except Unavailable as error:
        return str(error)


def main(argv: list[str] | None = None) -> int:
    """Entry point of a launched rank."""
    from busbw.launch.control import join

    process.die_with_parent()
    emit = claim_stdout()
    job = decode((sys.argv[1:] if argv is None else argv)[0])
    control: Control | None = None
    try:
        dog = watched(job, say, DAEMONS)
        at = dog.at
        at("rendezvous", "")
        control = join(dict(os.environ), expect=job.ranks // job.gpus_per_process or None)
        job = chosen(job, control, emit)
        ask_library(dog, job, control.rank)
        measure(job, control, emit, at)
        control.close()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever it is, the other ranks must not wait for it
        return fail(error, control)
    return int(Exit.OK)


if __name__ == "__main__":
    sys.exit(main())
