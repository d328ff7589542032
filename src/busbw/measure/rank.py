"""What every rank runs: join the others, open the engine, measure, and tell the story from rank 0.

Started as `python -m busbw.measure.rank JOB` by a launcher, or called in the process of the command line under an outer mpirun.
"""

import os
import platform
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from busbw import __version__
from busbw.core.env import ALLTOALLV, carried
from busbw.core.errors import BusbwError, CannotTell, UsageError
from busbw.core.exits import Exit
from busbw.core.groups import color
from busbw.core.result import SCHEMA, Device, Result, World
from busbw.core.sweep import roots, series
from busbw.core.topology import Host, Topology
from busbw.engines.base import Control, Engine
from busbw.engines.registry import Opening, engine
from busbw.host.read import read_host
from busbw.measure import plan
from busbw.measure.events import Emit, Ended, Event, Failed, Note, Started, encode, say_failed
from busbw.measure.job import Job, decode
from busbw.measure.runner import Runner, now
from busbw.model.bounds import given
from busbw.model.world import ideals


@dataclass(slots=True)
class Party:
    """Who is there: the whole job, this process' group, its place on its host, and the groups in all."""

    job: Control
    group: Control
    color: int
    groups: int
    local: int


def measure(job: Job, control: Control, emit: Emit) -> None:
    """Run the whole job on this process; `emit` is called on process 0 alone."""
    party = join_groups(control)
    row = engine(job.engine)
    if job.engine == "mpi" and job.gpus_per_process > 1:
        ranks = control.size * job.gpus_per_process
        raise CannotTell(
            f"-t and -g ask for {job.gpus_per_process} ranks a process, and a CPU rank is a process of its own",
            f"mpirun -np {ranks}, without -t and -g",
        )
    opening = Opening(party.group, job.sweep, control.rank, party.local, party.color, job.gpus_per_process, job.simulation)
    opened = row.open(opening)
    try:
        result, max_bytes = prepare(job, party, opened)
        if control.rank == 0:
            emit(Started(result))
        _summarise_alltoallv(job, opened, max_bytes, emit if control.rank == 0 else None)
        runner = Runner(opened, party.job, party.group, job.sweep, max_bytes, emit)
        runner.sweep()
        memory = opened.memory_use() if job.sweep.memory else {}
        if control.rank == 0:
            emit(Ended(now(), memory))
    except BaseException as error:
        told = opened.explained(error) if isinstance(error, Exception) else error
        opened.close(abort=True)
        if told is not error:
            raise told from error
        raise
    opened.close()


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
    devices: list[Device] = [device for some in party.job.allgather(opened.devices()) for device in some]
    memory = [size for size in party.job.allgather(opened.memory_bytes()) if size is not None]
    max_bytes = plan.capped_max(job.sweep, min(memory, default=None))
    size = plan.buffer_bytes(job.sweep, max_bytes)
    opened.allocate(size, size)
    world = World(devices, party.job.size, party.groups)
    topology = read_topology(party)
    environment = carried(os.environ, all_names=job.compat)
    best, endpoint = ideals(job.sweep.collective, world, topology, environment)
    if job.ideal:
        best = endpoint = given(job.ideal)
    result = Result(
        schema=SCHEMA,
        tool=f"busbw {__version__}",
        spec=job.sweep,
        argv=job.argv,
        program=job.program,
        start=now(),
        library=opened.library(),
        world=world,
        topology=topology,
        environment=environment,
        reduced_max_bytes=max_bytes if max_bytes < job.sweep.max_bytes else None,
        ideal=best,
        endpoint_ideal=endpoint,
    )
    return result, max_bytes


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


def failed(error: BaseException, control: Control | None) -> Failed:
    """What to tell of an error that ended this rank."""
    rank, host = control.rank if control else -1, platform.node()
    if isinstance(error, BusbwError):
        return Failed(error.message, error.hint, int(error.exit), rank, host, type(error).__name__)
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
            raise CannotTell("nobody reads the results any more", "the launching busbw was stopped") from error

    return emit


def main(argv: list[str] | None = None) -> int:
    """Entry point of a launched rank."""
    from busbw.launch.control import join

    emit = claim_stdout()
    job = decode((sys.argv[1:] if argv is None else argv)[0])
    control: Control | None = None
    try:
        control = join(dict(os.environ), expect=job.ranks // job.gpus_per_process or None)
        measure(job, control, emit)
        control.close()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever it is, the other ranks must not wait for it
        return fail(error, control)
    return int(Exit.OK)


if __name__ == "__main__":
    sys.exit(main())
