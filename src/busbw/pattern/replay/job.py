"""The replay of a pattern as a job: process 0 reads the file, all replay it, and process 0 makes
the result.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from busbw.core.collectives import BY_NAME as COLLECTIVES
from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.pattern import KERNEL, Pattern, Times
from busbw.core.pattern_weights import (
    average,
    coverage,
    lacks_ranks,
    parts,
    ranks_of,
    scaled,
    spans,
    step,
    weights,
    world_of,
)
from busbw.core.ran import LoggedConnections
from busbw.core.sizes import counted
from busbw.engines.base import Engine
from busbw.engines.nccl_log import Log
from busbw.engines.registry import engine
from busbw.launch.control import Control
from busbw.measure import network, tuner_table, what_ran
from busbw.measure.events import Emit, Ended, EnterPhase, Note, Started, now
from busbw.measure.kernel_times import KERNEL_TIMES_SINCE, KernelTimes, TimedKernel
from busbw.measure.process_groups import Party, facts, join_all
from busbw.measure.profiler_calls import SELF_SENDS_COUNTED_SINCE
from busbw.model.usable_hardware import ideals
from busbw.pattern.registry import load
from busbw.pattern.replay.kind import Played, ReplayJob, ReplayResult
from busbw.pattern.replay.plan import Operation, ReplayPlan, warm_up
from busbw.pattern.replay.timing import Player, ReplayEngines, check_members, open_engines
from busbw.pattern.replay.types import Replay, ReplayedRow

GPU, EVENT, CPU = "gpu", "event", "cpu"
_OTHER_CLOCK = (
    "the recorded times are by NCCL's kernel events, which leave out the launch; those of the"
    " replay may be by CUDA events around it"
)


@dataclass(frozen=True, slots=True)
class _Task:
    """What is replayed: the plan, the pattern as it was recorded, and notes on choices of it that
    NCCL is not asked for.
    """

    plan: ReplayPlan
    recorded: Pattern
    notes: list[str]


@dataclass(frozen=True, slots=True)
class ReplayTimes:
    """What one process timed.

    `walls` are the seconds of each repeat. `taken` has for each repeat the microseconds by number
    of operation, `ran` for each operation the kernels of all repeats.
    """

    walls: list[float]
    taken: list[dict[int, float]]
    ran: dict[int, list[TimedKernel]]

    def time_us(self, number: int, repeat: int) -> float | None:
        """The time of an operation; None if it was not timed."""
        if number in self.ran:
            return self.ran[number][repeat].time_us
        return self.taken[repeat].get(number)


def replay(job: ReplayJob, control: Control, emit: Emit, enter_phase: EnterPhase) -> None:
    """Run this process' part; only process 0 calls `emit`."""
    party = join_all(control, "a replay")
    if engine(job.engine).in_process:
        raise UsageError(f"engine {job.engine} has no replay", "use --engine mpi, nccl or torch")
    recorded = control.bcast(load([job.replay.pattern]) if control.process == 0 else None)
    pattern = scaled(recorded, control.processes, job.replay.scale)
    check_members(pattern.comms, control.processes)
    plan = ReplayPlan(pattern)
    if not plan.operations:
        raise NoMeasurement(
            "; ".join(
                [f"{job.replay.pattern}: no call of it can be replayed", *coverage(recorded)]
            ),
            "busbw show FILE shows what it holds",
        )
    enter_phase("init", job.engine)
    as_recorded = job.replay.choice == "recorded" and engine(job.engine).nccl
    choices = pattern if as_recorded else Pattern(pattern.header)
    with closing(KernelTimes()) as kernels, ExitStack() as stack:
        with (
            tuner_table.asking(choices, control) as notes,
            network.starting(job, control, stay=True) as log,
        ):
            opened = open_engines(job, party, pattern.comms, plan)
        stack.enter_context(closing(log))
        try:
            task = _Task(plan, recorded, notes)
            _play(job, party, opened, task, kernels, log, emit, enter_phase)
        except BaseException as error:
            explained: BaseException = error
            if isinstance(error, Exception):
                explained = next(iter(opened.engines.values())).explained(error)
            opened.close(abort=True)
            if explained is not error:
                raise explained from error
            raise


def _play(
    job: ReplayJob,
    party: Party,
    opened: ReplayEngines,
    task: _Task,
    kernels: KernelTimes,
    log: Log,
    emit: Emit,
    enter_phase: EnterPhase,
) -> None:
    """Replay the operations; process 0 emits the result."""
    control, first = party.world, next(iter(opened.engines.values()))
    plan = task.plan
    enter_phase("prepare", "")
    result = ReplayResult(replay=_blank(job, plan, task.recorded), **facts(job, party, first))
    result.library.network = network.agreed(job, control, result.library, log.networks)
    if control.process == 0:
        emit(Started(result))
        note = network.unconfirmed(job, result.library.network)
        if note:
            emit(Note(note))
    player = Player(job, opened, plan.operations, enter_phase)
    player.prepare()
    usable = first.asynchronous and kernels.running and _counts_kernels(result, plan)
    marks = not all(control.allgather(usable))  # the same kind of time on all ranks
    walls, taken = [], []
    for repeat in range(job.replay.repeats):
        control.barrier()
        wall_s, times = player.play(repeat, marks=marks)
        walls.append(wall_s)
        taken.append(times)
    enter_phase("teardown", "")
    ran = _connections(plan.pattern, party, first, log)
    ranks = {comm: opened_engine.ranks[0] for comm, opened_engine in opened.engines.items()}
    opened.close()
    kernels_of: dict[int, list[TimedKernel]] = {}
    if not marks:
        kernels_of = _by_operation(plan.operations, kernels.by_comm(), ranks, job.replay.repeats)
    processes = control.gather(ReplayTimes(walls, taken, kernels_of))
    if processes is not None:
        kind = GPU if not marks else _clock_of_marks(first)
        _conclude(result.replay, plan, processes, kind)
        _add_ideals(result)
        _add_notes(job, result.replay, task, kind)
        emit(Played(result.replay))
        emit(Ended(now(), {}, ran=ran))


def _clock_of_marks(opened: Engine) -> str:
    return EVENT if opened.asynchronous else CPU


def _connections(
    pattern: Pattern, party: Party, opened: Engine, log: Log
) -> LoggedConnections | None:
    """How NCCL connected the ranks, on process 0. Of several communicators it is not known: the log
    has the numbers of ranks in each. Collective.
    """
    is_known = [comm.ranks for comm in pattern.comms] == [party.world.processes]
    return what_ran.connections(log, party, opened) if is_known else None


def _counts_kernels(result: ReplayResult, plan: ReplayPlan) -> bool:
    """Whether this release of NCCL reports the kernels of all operations of the plan."""
    if result.library.nccl < KERNEL_TIMES_SINCE:
        return False
    to_self = any(operation.to_self for operation in plan.operations)
    return not to_self or result.library.nccl >= SELF_SENDS_COUNTED_SINCE


def _idle_notes(recorded: Pattern) -> list[str]:
    """A note on ranks whose own groups are not in the pattern."""
    missing = set(range(world_of(recorded))) - set(recorded.header.ranks)
    if not lacks_ranks(recorded) or not recorded.header.ranks_known or not missing:
        return []
    return [
        f"not recorded: {counted(len(missing), 'rank')} ({spans(sorted(missing))}), which make only"
        " the calls that they share with recorded ranks, and are idle otherwise"
    ]


def _add_notes(job: ReplayJob, replay: Replay, task: _Task, kind: str) -> None:
    """Add what the result's reader should know; `kind` is the clock of its times."""
    replay.notes += [*coverage(task.recorded), *task.notes]
    replay.notes += _idle_notes(task.recorded)
    if kind == GPU and set(task.recorded.header.clocks) == {KERNEL}:
        replay.notes.append(_OTHER_CLOCK)
    if not any(row.times for row in replay.rows):
        replay.notes.append(
            "NCCL's profiler interface gave no times; with NCCL_PROFILER_PLUGIN=none CUDA events"
            " are used"
        )
    others = sum(row.ran_another for row in replay.rows)
    if others and job.replay.choice == "recorded":
        replay.notes.append(
            f"{counted(others, 'row')} for which NCCL ran another algorithm or protocol than was"
            " asked for"
        )


def _blank(job: ReplayJob, plan: ReplayPlan, recorded: Pattern) -> Replay:
    """The replay before anything is timed."""
    pattern = plan.pattern
    calls = [call.row for call in pattern.calls]
    repeated = step(calls)
    step_calls = Counter(calls[len(calls) - repeated.calls :])
    rows = [
        ReplayedRow(
            row, pattern.comm(row).ranks, recorded_weight=weight, step_calls=step_calls[number]
        )
        for number, (row, weight) in enumerate(zip(pattern.rows, weights(pattern), strict=True))
    ]
    return Replay(
        job.replay,
        recorded.header.source,
        pattern.ordered,
        ranks_of(recorded),
        pattern.comms,
        rows,
        plan.skipped,
        recorded_wall_s=recorded.header.seconds,
        period=repeated.calls,
        steps=repeated.times,
        average=average(recorded),
    )


def _by_operation(
    operations: Sequence[Operation],
    kernels: Sequence[Sequence[TimedKernel]],
    ranks: dict[int, int],
    repeats: int,
) -> dict[int, list[TimedKernel]]:
    """The kernels of each operation, one for each repeat.

    `ranks` has this process' rank in each communicator, in the order of their creation; `kernels`
    has those communicators on which this process called NCCL, in the same order. A communicator
    with another number of calls than were made is left out.
    """
    result: dict[int, list[TimedKernel]] = {}
    numbers_of: dict[int, list[int]] = {}
    for comm, rank in ranks.items():
        numbers = [
            number
            for number, operation in enumerate(operations)
            if operation.comm == comm and operation.moves(rank)
        ]
        if numbers:
            numbers_of[comm] = numbers
    warm_ups = warm_up(operations)
    for comm_kernels, (comm, numbers) in zip(kernels, numbers_of.items(), strict=False):
        warm = sum(
            operation.comm == comm and operation.moves(ranks[comm]) for operation in warm_ups
        )
        if len(comm_kernels) == warm + repeats * len(numbers):
            for at, kernel in enumerate(comm_kernels[warm:]):
                result.setdefault(numbers[at % len(numbers)], []).append(kernel)
    return result


def _conclude(
    replay: Replay, plan: ReplayPlan, processes: Sequence[ReplayTimes], kind: str
) -> None:
    """Fill in the rows from what all processes timed; `kind` is the clock.

    An operation takes the shortest time of a rank, which waited for no other, as in a capture. On
    CPUs a call that a rank can leave before all have entered, such as the root's of a broadcast,
    may return at once, so there it is the longest.
    """
    process_walls = [timed.walls for timed in processes]
    replay.wall_s = [max(walls) for walls in zip(*process_walls, strict=True)]
    shares = _occupied(plan)
    times: dict[int, list[float]] = {}
    skews: dict[int, list[float]] = {}
    for number, operation in enumerate(plan.operations):
        for repeat in range(len(replay.wall_s) if operation.counted else 0):
            rank_times = [timed.time_us(number, repeat) for timed in processes]
            durations = [time_us for time_us in rank_times if time_us is not None]
            if not durations:
                continue
            longest = kind == CPU and not operation.call.collective.synchronizes
            duration = max(durations) if longest else min(durations)
            for row in operation.rows:
                times.setdefault(row, []).append(duration / len(operation.rows))
                skews.setdefault(row, []).append(max(durations) - min(durations))
        kernels = [timed.ran[number][0] for timed in processes if number in timed.ran]
        if kernels:
            for row in operation.rows:
                replayed = replay.rows[row]
                replayed.algorithm = kernels[0].algorithm
                replayed.protocol = kernels[0].protocol
                replayed.channels = kernels[0].channels
    for row, taken in times.items():
        replayed = replay.rows[row]
        middle = statistics.median(taken)
        replayed.times = Times(len(taken), sum(taken), min(taken), middle, max(taken))
        replayed.kind = kind
        replayed.skew_us = statistics.median(skews[row])
        replayed.weight = shares[row]


def _occupied(plan: ReplayPlan) -> dict[int, float]:
    """For each replayed row, the part of the ranks read that call NCCL for one of its
    operations, averaged over the operations.
    """
    pattern = plan.pattern
    row_parts = parts(pattern)
    read = set(pattern.header.ranks) or set(range(world_of(pattern)))
    shares: dict[int, list[float]] = {}
    moving: dict[tuple[int, int], float] = {}
    for operation in plan.operations:
        comm, call = pattern.comms[operation.comm], operation.call
        key = (comm.id, id(call))
        if call.layout.matrix and key not in moving:
            members = comm.members or range(comm.ranks)
            callers = read & {members[rank] for rank in operation.moving}
            moving[key] = len(callers) / len(read)
        for row in operation.rows:
            shares.setdefault(row, []).append(moving.get(key, row_parts[row]))
    return {row: statistics.fmean(values) for row, values in shares.items()}


def _add_ideals(result: ReplayResult) -> None:
    """The largest bound over the whole job for each row; none for other communicators."""
    for row in result.replay.rows:
        if row.row.function in COLLECTIVES and row.ranks == result.world.ranks:
            best, _ = ideals(row.row.function, result.world, result.topology, result.environment)
            if best:
                row.ideal, row.ideal_algorithm = best.busbw, best.algorithm
