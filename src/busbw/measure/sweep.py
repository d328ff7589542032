"""A process's part of a sweep job: open the engine, agree on sizes and buffers with the other
processes, have measure.runner measure, and report from process 0.
"""

import os
import platform
from collections.abc import Container, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TypeVar

import msgspec

from busbw.core.alltoallv import Traffic, Zipf, parse_counts, traffic
from busbw.core.env import ALLTOALLV
from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.options import CPU_FACTOR, CPU_LARGEST, CPU_SWEEP_S
from busbw.core.result import Result, World
from busbw.core.sizes import counted
from busbw.core.sweep import OF_SIZES, SweepSpec, roots, series, sizes
from busbw.engines.base import Engine
from busbw.engines.registry import EngineArguments, engine, ignored_options, refuse_ignored
from busbw.launch.control import Control
from busbw.measure import plan
from busbw.measure.events import Emit, Ended, EnterPhase, Note, Started, now
from busbw.measure.host_sampler import HostSampler
from busbw.measure.job import SweepJob
from busbw.measure.library_session import library_session
from busbw.measure.process_groups import Party, facts, join_groups
from busbw.measure.runner import Runner
from busbw.model.bounds import parse_ideal
from busbw.model.usable_hardware import ideals

# The default precision: what visits agree to on machines that do nothing else.
GPU_PRECISION, CPU_PRECISION = 0.01, 0.1
OfSweep = TypeVar("OfSweep", bound=SweepJob)


def measure(
    job: SweepJob, control: Control, emit: Emit, enter_phase: EnterPhase = lambda *_: None
) -> None:
    """Run this process' part of the job.

    `emit` is called on process 0 only, `enter_phase` before every phase.
    """
    party = join_groups(control)
    engine_row = engine(job.engine)
    _refuse_options(job, control, emit)
    arguments = EngineArguments(
        control=party.group,
        spec=job.sweep,
        process=control.process,
        local=party.local,
        group=party.color,
        gpus=job.gpus_per_process,
        simulation=job.simulation,
    )
    repeats = job.sweep.sampling.repeats if job.sweep.sampling else 1
    with closing(library_session(job, party)) as session:
        for repeat in range(repeats):
            enter_phase("init", job.engine)
            with session.engine_starts(repeat):
                opened = engine_row.open(arguments)
            job = settled(job, opened)
            with running(opened):
                session.engine_started(opened)
                late_s = _injected_delay_s(job, party, opened)
                enter_phase("prepare", "")
                result, max_bytes = allocate_buffers(job, party, opened)
                session.confirm(result)
                result.loop = session.loop_name
                if control.process == 0 and repeat == 0:
                    _announce(job, result, opened, session.notes, max_bytes, emit)
                with closing(_host_sampler(job, party, result.world)) as host_sampler:
                    runner = Runner(
                        engine=opened,
                        world=party.world,
                        group=party.group,
                        spec=job.sweep,
                        max_bytes=max_bytes,
                        emit=emit,
                        enter_phase=enter_phase,
                        late_s=late_s,
                        host_sampler=host_sampler,
                        repeat=repeat,
                        loop=session.loop,
                        recorder=session.recorder,
                    )
                    runner.sweep()
                    # Before `links`, whose exchanges connect ranks that the sweep does not.
                    ran = session.connections(opened)
                    is_last = repeat == repeats - 1
                    links = runner.links(result.world.devices) if is_last else []
                memory = opened.memory_use() if job.sweep.memory else {}
                enter_phase("teardown", "")
                if control.process == 0 and is_last:
                    emit(Ended(now(), memory, links, ran, session.missing()))


def _refuse_options(job: SweepJob, control: Control, emit: Emit) -> None:
    """NoMeasurement or UsageError for options that the engine does not use; with compat a note."""
    if job.engine == "mpi" and job.gpus_per_process > 1:
        message = (
            f"-t and -g request {job.gpus_per_process} ranks per process, but each CPU rank is a"
            " separate process"
        )
        raise NoMeasurement(
            message, f"mpirun -np {control.processes * job.gpus_per_process}, without -t and -g"
        )
    if job.compat:
        ignored = ignored_options(job.sweep, job.engine, strict=False)
        if ignored and control.process == 0:
            emit(Note(f"note: {', '.join(ignored)}: not used by engine {job.engine}"))
    else:
        refuse_ignored(job.sweep, job.engine)


@contextmanager
def running(opened: Engine) -> Iterator[None]:
    """Close the engine at the end; after an error without waiting for other ranks."""
    try:
        yield
    except BaseException as error:
        explained = opened.explained(error) if isinstance(error, Exception) else error
        opened.close(abort=True)
        if explained is not error:
            raise explained from error
        raise
    opened.close()


def settled(job: OfSweep, opened: Engine) -> OfSweep:
    """The job with defaults that its ranks can reach: CPU ranks share their cores."""
    sweep, sampling = job.sweep, job.sweep.sampling
    if not opened.asynchronous:
        sweep = _of_cpus(sweep, set(job.unset))
        sampling = sweep.sampling
    if sampling and not sampling.precision:
        precision = GPU_PRECISION if opened.asynchronous else CPU_PRECISION
        sampling = msgspec.structs.replace(sampling, precision=precision)
    return msgspec.structs.replace(job, sweep=msgspec.structs.replace(sweep, sampling=sampling))


def _of_cpus(sweep: SweepSpec, unset: Container[str]) -> SweepSpec:
    """The sweep with the defaults of CPUs for what is `unset`, so that it ends soon."""
    if "max_bytes" in unset:
        largest = min(sweep.max_bytes, max(CPU_LARGEST, sweep.min_bytes))
        sweep = msgspec.structs.replace(sweep, max_bytes=largest)
    if not all(name in unset for name in OF_SIZES):
        return sweep
    sweep = msgspec.structs.replace(sweep, step_factor=CPU_FACTOR)
    sampling = sweep.sampling
    chosen = sweep.soak_s or sweep.run_cycles != 1 or "max_time" not in unset
    if chosen or sampling is None or sampling.fixed or sampling.tail or sampling.repeats > 1:
        return sweep
    sampling = msgspec.structs.replace(sampling, sweep_s=CPU_SWEEP_S)
    return msgspec.structs.replace(sweep, sampling=sampling)


def _duration_note(spec: SweepSpec, ranks: int, max_bytes: int) -> str:
    """What ranks on CPUs measure, and how long that takes; '' where it is not known."""
    sampling = spec.sampling
    if sampling is None or sampling.fixed or spec.soak_s or not spec.run_cycles:
        return ""
    rows = len(list(sizes(spec, max_bytes))) * len(list(series(spec, ranks))) * spec.run_cycles
    text = f"note: {counted(rows, 'row')}, each out of place and in place"
    if sampling.sweep_s:
        return f"{text}: ends after about {sampling.sweep_s:g} s; -b, -e and -f choose other sizes"
    expected_s = 2 * rows * sampling.max_time_s * sampling.repeats
    return f"{text}: up to about {expected_s:.0f} s, and more on a busy machine"


def _injected_delay_s(job: SweepJob, party: Party, opened: Engine) -> float:
    if not job.inject:
        return 0.0
    from busbw.measure import fault_injection

    fault = fault_injection.parse(job.inject)
    return fault_injection.delay_s(fault, opened, party.world.process, party.world.processes)


def _announce(
    job: SweepJob, result: Result, opened: Engine, notes: Sequence[str], max_bytes: int, emit: Emit
) -> None:
    """Emit the result without rows, and the notes on how it is measured, and for how long."""
    on_cpus = not opened.asynchronous and not job.compat
    if on_cpus and (note := _duration_note(job.sweep, opened.size, max_bytes)):
        emit(Note(note))
    emit(Started(result))
    for note in notes:
        emit(Note(note))
    if job.sweep.row.uneven:
        _describe_matrix(job, opened, max_bytes, emit)


def _host_sampler(job: SweepJob, party: Party, world: World) -> HostSampler:
    """The sampler of this host; only one process of each has devices to sample."""
    devices = []
    if party.local == 0 and job.sweep.sampling is not None:
        host = platform.node()
        devices = [device for device in world.devices if device.host == host]
    return HostSampler(devices, watch=job.watch)


def refuse_out_of_step(job: SweepJob, sizes: set[int]) -> None:
    """UsageError if groups of different sizes would run different sweeps, and so wait forever."""
    spec = job.sweep
    every_root = spec.row.rooted and spec.root.strip().lower() in ("all", "-1")
    if len(sizes) > 1 and (every_root or spec.row.ranks_power_of_two):
        collective = spec.collective + (" with every root" if every_root else "")
        ranks = ", ".join(map(str, sorted(sizes)))
        message = (
            f"NCCL_TESTS_SPLIT creates groups of {ranks} ranks, and {collective} needs a different"
            " sweep in each"
        )
        raise UsageError(message, "split into equal groups")


def allocate_buffers(job: SweepJob, party: Party, opened: Engine) -> tuple[Result, int]:
    """Agree on the largest size, allocate the buffers, and gather the facts of the result.

    Returns the result without rows, and the largest size in bytes. Collective.
    """
    roots(job.sweep, opened.size)
    refuse_out_of_step(job, set(party.world.allgather(opened.size)))
    memory = [size for size in party.world.allgather(opened.memory_bytes()) if size is not None]
    max_bytes = plan.capped_max(job.sweep, min(memory, default=None))
    if not job.compat:
        plan.refuse_empty(job.sweep, max_bytes, opened.size)
    size = plan.buffer_bytes(job.sweep, max_bytes)
    opened.allocate(size, size)
    result = Result(spec=job.sweep, **facts(job, party, opened, all_names=job.compat))
    result.traffic = _traffic(job, party, result.world, opened.size, max_bytes)
    best, endpoint = ideals(
        job.sweep.collective, result.world, result.topology, result.environment, result.traffic
    )
    if job.ideal:
        best = endpoint = parse_ideal(job.ideal)
    result.reduced_max_bytes = max_bytes if max_bytes < job.sweep.max_bytes else None
    result.ideal, result.endpoint_ideal = best, endpoint
    return result, max_bytes


def _traffic(
    job: SweepJob, party: Party, world: World, ranks: int, max_bytes: int
) -> Traffic | None:
    """What alltoallv moves at the largest size.

    UsageError if ranks read different files, and would wait for each other forever.
    """
    if not job.sweep.row.uneven:
        return None
    calls = plan.Calls(job.sweep, next(series(job.sweep, ranks)), ranks)
    matrix = calls.matrix_bytes(max_bytes)
    sources = party.group.allgather(calls.matrices.source)
    for process, source in enumerate(sources):
        if source != sources[0]:
            raise UsageError(
                f"alltoallv: process {process} reads {source}, but process 0 {sources[0]}",
                "give every host the same file",
            )
    hosts = [device.host for device in world.devices if device.group == world.devices[0].group]
    return traffic(matrix, calls.matrices.source, hosts if len(hosts) == ranks else [""] * ranks)


def _describe_matrix(job: SweepJob, opened: Engine, max_bytes: int, emit: Emit) -> None:
    from busbw.measure.alltoallv import unique_ids

    counts = parse_counts(job.sweep.counts) if job.sweep.counts else None
    if isinstance(counts, Zipf) and counts.dedup:
        rows = f"{unique_ids(counts):.0f} different rows"
        emit(Note(f"note: a batch of {counts.ids} ids asks for {rows}"))
    if os.environ.get(ALLTOALLV.print_summary, "0") in ("", "0"):
        return
    calls = plan.Calls(job.sweep, next(series(job.sweep, opened.size)), opened.size)
    for rank, row in enumerate(calls.matrix_bytes(max_bytes)):
        emit(Note(f"# rank {rank} sends {sum(row)} bytes: {' '.join(map(str, row))}", answer=True))
