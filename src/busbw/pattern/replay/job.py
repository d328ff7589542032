"""The replay of a pattern as a job: process 0 reads the file, all replay it, and process 0 makes
the result.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from busbw.core.collectives import BY_NAME as COLLECTIVES
from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.pattern import Pattern, Times
from busbw.core.pattern_weights import (
    average,
    coverage,
    parts,
    ranks_of,
    scaled,
    step,
    weights,
    world_of,
)
from busbw.core.sizes import counted
from busbw.engines.registry import engine
from busbw.launch.control import Control
from busbw.measure import network, tuner_table
from busbw.measure.events import Emit, Ended, EnterPhase, Note, Started, now
from busbw.measure.process_groups import Party, facts, join_groups
from busbw.measure.profiler_calls import SELF_COUNTED, SINCE, Kernel, KernelTimes
from busbw.model.usable_hardware import ideals
from busbw.pattern.registry import load
from busbw.pattern.replay.plan import Operation, ReplayPlan, warm_up
from busbw.pattern.replay.timing import Opened, Player, check_members, open_engines
from busbw.pattern.replay.types import Played, Replay, Replayed, ReplayJob, ReplayResult

GPU, EVENT, CPU = "gpu", "event", "cpu"


@dataclass(frozen=True, slots=True)
class Timed:
    """What one process timed: seconds of each repeat, and by operation microseconds in each
    repeat, or the kernels of each repeat.
    """

    walls: list[float]
    taken: list[dict[int, float]]
    ran: dict[int, list[Kernel]]

    def time_us(self, number: int, repeat: int) -> float | None:
        """The time of an operation."""
        if number in self.ran:
            return self.ran[number][repeat].time_us
        return self.taken[repeat].get(number)


def replay(job: ReplayJob, control: Control, emit: Emit, enter_phase: EnterPhase) -> None:
    """Run this process' part; `emit` is called on process 0 alone."""
    party = join_groups(control)
    if party.groups > 1:
        raise UsageError("NCCL_TESTS_SPLIT makes groups, but a replay uses all ranks", "unset it")
    if engine(job.engine).in_process:
        raise UsageError(f"engine {job.engine} has no replay", "use --engine mpi, nccl or torch")
    recorded = control.bcast(load([job.replay.pattern]) if control.process == 0 else None)
    pattern = scaled(recorded, control.processes, job.replay.scale)
    check_members(pattern.comms, control.processes)
    plan = ReplayPlan(pattern)
    if not plan.operations:
        raise NoMeasurement(
            f"{job.replay.pattern}: no call of it can be replayed",
            "busbw pattern FILE shows what it holds",
        )
    enter_phase("init", job.engine)
    wanted = (
        pattern
        if job.replay.choice == "recorded" and engine(job.engine).nccl
        else Pattern(pattern.header)
    )
    with (
        closing(KernelTimes()) as kernels,
        tuner_table.asking(wanted, control) as notes,
        network.starting(job, control) as log,
    ):
        opened = open_engines(job, party, pattern.comms, plan)
        try:
            _play(
                job, party, opened, plan, recorded, kernels, log.networks, notes, emit, enter_phase
            )
        except BaseException as error:
            explained = (
                next(iter(opened.engines.values())).explained(error)
                if isinstance(error, Exception)
                else error
            )
            opened.close(abort=True)
            if explained is not error:
                raise explained from error
            raise


def _play(
    job: ReplayJob,
    party: Party,
    opened: Opened,
    plan: ReplayPlan,
    recorded: Pattern,
    kernels: KernelTimes,
    networks: Sequence[str],
    notes: list[str],
    emit: Emit,
    enter_phase: EnterPhase,
) -> None:
    control, first = party.world, next(iter(opened.engines.values()))
    enter_phase("prepare", "")
    result = ReplayResult(replay=_blank(job, plan, recorded), **facts(job, party, first))
    result.library.network = network.agreed(job, control, result.library, networks)
    if control.process == 0:
        emit(Started(result))
        if note := network.unconfirmed(job, result.library.network):
            emit(Note(note))
    player = Player(job, opened, plan.operations, enter_phase)
    player.prepare()
    shifted = result.library.nccl < SELF_COUNTED and any(
        operation.to_self for operation in plan.operations
    )
    usable = first.asynchronous and kernels.running and result.library.nccl >= SINCE and not shifted
    marks = not all(control.allgather(usable))  # the same kind of time on all ranks
    walls, taken = [], []
    for repeat in range(job.replay.repeats):
        control.barrier()
        wall_s, times = player.play(repeat, marks=marks)
        walls.append(wall_s)
        taken.append(times)
    enter_phase("teardown", "")
    ranks = {comm: one.ranks[0] for comm, one in opened.engines.items()}
    opened.close()
    ran = (
        {}
        if marks
        else _by_operation(plan.operations, kernels.by_comm(), ranks, job.replay.repeats)
    )
    everyone = control.gather(Timed(walls, taken, ran))
    if everyone is not None:
        _conclude(
            result.replay,
            plan,
            everyone,
            GPU if not marks else EVENT if first.asynchronous else CPU,
        )
        _add_ideals(result)
        result.replay.notes += [*coverage(recorded), *notes]
        if not any(row.times for row in result.replay.rows):
            result.replay.notes.append(
                "NCCL's profiler interface gave no times; with NCCL_PROFILER_PLUGIN=none CUDA"
                " events are used"
            )
        if others := (
            sum(row.ran_another for row in result.replay.rows)
            if job.replay.choice == "recorded"
            else 0
        ):
            result.replay.notes.append(
                f"{counted(others, 'row')} for which NCCL ran another algorithm or protocol than"
                " was asked for"
            )
        emit(Played(result.replay))
        emit(Ended(now(), {}))


def _blank(job: ReplayJob, plan: ReplayPlan, recorded: Pattern) -> Replay:
    pattern = plan.pattern
    rows = zip(pattern.rows, weights(pattern), strict=True)
    calls = [call.row for call in pattern.calls]
    repeated = step(calls)
    of_step = Counter(calls[len(calls) - repeated.calls :])
    return Replay(
        job.replay,
        recorded.header.source,
        pattern.ordered,
        ranks_of(recorded),
        pattern.comms,
        [
            Replayed(
                row, pattern.comm(row).ranks, recorded_weight=weight, step_calls=of_step[number]
            )
            for number, (row, weight) in enumerate(rows)
        ],
        plan.skipped,
        recorded_wall_s=recorded.header.seconds,
        period=repeated.calls,
        steps=repeated.times,
        average=average(recorded),
    )


def _by_operation(
    operations: Sequence[Operation],
    kernels: Sequence[Sequence[Kernel]],
    ranks: dict[int, int],
    repeats: int,
) -> dict[int, list[Kernel]]:
    """The kernels of each operation, one for each repeat.

    `ranks` has this process' rank in each communicator, in the order of their creation; `kernels`
    has those communicators on which this process called NCCL, in the same order. A communicator
    with another number of calls than were made is left out.
    """
    found: dict[int, list[Kernel]] = {}
    own = {
        comm: [
            number
            for number, operation in enumerate(operations)
            if operation.comm == comm and operation.moves(rank)
        ]
        for comm, rank in ranks.items()
    }
    used = [(comm, numbers) for comm, numbers in own.items() if numbers]
    for every, (comm, numbers) in zip(kernels, used, strict=False):
        warm = sum(one.comm == comm and one.moves(ranks[comm]) for one in warm_up(operations))
        if len(every) == warm + repeats * len(numbers):
            for at, kernel in enumerate(every[warm:]):
                found.setdefault(numbers[at % len(numbers)], []).append(kernel)
    return found


def _conclude(replay: Replay, plan: ReplayPlan, everyone: Sequence[Timed], kind: str) -> None:
    """Fill in the rows.

    An operation takes the shortest time of a rank, which waited for no other, as in a capture. On
    CPUs a call that a rank can leave before all have entered, such as the root's of a broadcast,
    may return at once, so there it is the longest.
    """
    replay.wall_s = [max(walls) for walls in zip(*(one.walls for one in everyone), strict=True)]
    occupied = _occupied(plan)
    times: dict[int, list[float]] = {}
    skews: dict[int, list[float]] = {}
    for number, operation in enumerate(plan.operations):
        for repeat in range(len(replay.wall_s) if operation.counted else 0):
            seen = [
                time_us for one in everyone if (time_us := one.time_us(number, repeat)) is not None
            ]
            took = max if kind == CPU and not operation.call.collective.synchronizes else min
            for row in operation.rows if seen else ():
                times.setdefault(row, []).append(took(seen) / len(operation.rows))
                skews.setdefault(row, []).append(max(seen) - min(seen))
        kernel = next((one.ran[number][0] for one in everyone if number in one.ran), None)
        if kernel:
            for row in operation.rows:
                shown = replay.rows[row]
                shown.algorithm, shown.protocol, shown.channels = (
                    kernel.algorithm,
                    kernel.protocol,
                    kernel.channels,
                )
    for row, taken in times.items():
        replay.rows[row].times = Times(
            len(taken), sum(taken), min(taken), statistics.median(taken), max(taken)
        )
        replay.rows[row].kind, replay.rows[row].skew_us = kind, statistics.median(skews[row])
        replay.rows[row].weight = occupied[row]


def _occupied(plan: ReplayPlan) -> dict[int, float]:
    """For each replayed row, the part of the ranks read that call NCCL for one of its
    operations, averaged over the operations.
    """
    pattern, shares = plan.pattern, parts(plan.pattern)
    read = set(pattern.header.ranks) or set(range(world_of(pattern)))
    found: dict[int, list[float]] = {}
    moving: dict[tuple[int, int], float] = {}
    for operation in plan.operations:
        comm, call = pattern.comms[operation.comm], operation.call
        if call.layout.matrix and (comm.id, id(call)) not in moving:
            members = comm.members or range(comm.ranks)
            moving[comm.id, id(call)] = len(
                read & {members[rank] for rank in operation.moving}
            ) / len(read)
        for row in operation.rows:
            found.setdefault(row, []).append(moving.get((comm.id, id(call)), shares[row]))
    return {row: statistics.fmean(values) for row, values in found.items()}


def _add_ideals(result: ReplayResult) -> None:
    """The largest bound of each row's collective over the whole job; rows of other communicators
    have none.
    """
    for row in result.replay.rows:
        if row.row.function in COLLECTIVES and row.ranks == result.world.ranks:
            best, _ = ideals(row.row.function, result.world, result.topology, result.environment)
            if best:
                row.ideal, row.ideal_algorithm = best.busbw, best.algorithm
