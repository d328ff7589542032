"""One rank's part of a replay: open an engine for each communicator, run the operations in order,
and time each of them.

With NCCL and the profiler plugin the time of an operation is that of its kernels, as in a capture;
without the plugin it is that between CUDA events, on CPUs that of the call.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from busbw.core.errors import NoMeasurement
from busbw.core.pattern import Comm
from busbw.core.sweep import SweepSpec
from busbw.engines.base import Engine, Launch
from busbw.engines.registry import Opening, engine
from busbw.measure.events import EnterPhase
from busbw.measure.process_groups import Party
from busbw.measure.progress import Progress
from busbw.pattern.replay.plan import Operation, ReplayPlan, warm_up
from busbw.pattern.replay.types import ReplayJob

BATCH = 48  # operations between two waits: NCCL keeps the start and end of 64 for each channel


@dataclass(slots=True)
class Opened:
    """The engines of this process by communicator."""

    engines: dict[int, Engine]

    def close(self, *, abort: bool = False) -> None:
        """Close all."""
        for one in self.engines.values():
            one.close(abort=abort)


def open_engines(job: ReplayJob, party: Party, comms: Sequence[Comm], plan: ReplayPlan) -> Opened:
    """An engine for each communicator that this process is a member of.

    Collective over all processes.
    """
    if job.engine == "torch":
        from busbw.engines.torch_rank import TorchRank

        TorchRank(party.world, party.local, 0, party.world.process, parent=True)
    opened = Opened({})
    # for which PyTorch's engine has one buffer more than for others
    spec = SweepSpec(collective="reduce", check=0)
    for comm in comms:
        members = comm.members or list(range(comm.ranks))
        mine = party.world.process in members
        control = (
            party.world if len(members) == party.world.processes else party.world.split(int(mine))
        )
        if not mine:
            continue
        opening = Opening(
            control=control,
            spec=spec,
            process=party.world.process,
            local=party.local,
            group=0,
            gpus=1,
            simulation={},
        )
        opened.engines[comm.id] = engine(job.engine).open(opening)
        opened.engines[comm.id].allocate(size := max(plan.buffer_bytes(comm.id), 1), size)
    return opened


@dataclass(frozen=True, slots=True)
class _Step:
    """An operation as this process runs it."""

    number: int
    engine: Engine
    launch: Launch
    after: tuple[Engine, ...]


class Player:
    """Runs the operations of a plan on this process."""

    def __init__(
        self,
        job: ReplayJob,
        opened: Opened,
        operations: Sequence[Operation],
        enter_phase: EnterPhase,
    ) -> None:
        self._job, self._opened, self._enter = job, opened, enter_phase
        bound: dict[tuple[int, int], Launch] = {}
        self._steps = []
        for number, operation in enumerate(operations):
            own = opened.engines.get(operation.comm)
            if own is None:
                continue
            key = (operation.comm, id(operation.call))
            launch = bound.get(key) or bound.setdefault(key, own.bind(operation.call))
            after = (
                tuple(opened.engines[comm] for comm in operation.after if comm in opened.engines)
                if own.asynchronous
                else ()
            )
            self._steps.append(_Step(number, own, launch, after))
        self._most_bytes = max(
            (max(one.call.send, one.call.recv) * one.call.dtype.itemsize for one in operations),
            default=0,
        )
        self._warm = [
            (opened.engines[one.comm], one)
            for one in warm_up(operations)
            if one.comm in opened.engines
        ]

    def prepare(self) -> None:
        """Run each kind of operation once: the first makes connections."""
        progress = Progress(self._most_bytes, 1, None)
        self._enter("warm-up", f"{len(self._warm)} operations", progress)
        for own, operation in self._warm:
            own.bind(operation.call)()
            own.synchronize(self._job.replay.timeout)
            progress.done += 1

    def play(self, repeat: int, *, marks: bool) -> tuple[float, dict[int, float]]:
        """Seconds of the whole, and with `marks` microseconds of each operation by its number."""
        progress = Progress(self._most_bytes, BATCH, None)
        self._enter("timing", f"repeat {repeat + 1}", progress)
        taken: dict[int, float] = {}
        start = time.perf_counter()
        for first in range(0, len(self._steps), BATCH):
            batch = self._steps[first : first + BATCH]
            (self._marked if marks else self._plain)(batch, taken)
            progress.done += 1
        return time.perf_counter() - start, taken

    def _plain(self, batch: Sequence[_Step], taken: dict[int, float]) -> None:
        for step in batch:
            for other in step.after:
                step.engine.follow(other)
            step.launch()
        self._wait()

    def _marked(self, batch: Sequence[_Step], taken: dict[int, float]) -> None:
        for at, step in enumerate(batch):
            for other in step.after:
                step.engine.follow(other)
            step.engine.mark(2 * at)
            step.launch()
            step.engine.mark(2 * at + 1)
        self._wait()
        for at, step in enumerate(batch):
            taken[step.number] = step.engine.elapsed_s(2 * at, 2 * at + 1)[0] * 1e6

    def _wait(self) -> None:
        for own in self._opened.engines.values():
            own.synchronize(self._job.replay.timeout)


def check_members(comms: Sequence[Comm], processes: int) -> None:
    """NoMeasurement if a communicator's members are unknown or not in this job, or a rank of the
    job is in no communicator.
    """
    used = {member for comm in comms for member in comm.members or range(comm.ranks)}
    if idle := sorted(set(range(processes)) - used):
        message = f"rank {idle[0]} of {processes} is in no communicator of the pattern"
        raise NoMeasurement(
            message, "the record of that rank is missing: busbw pattern FILE says what was read"
        )
    for comm in comms:
        if not comm.members and comm.ranks != processes:
            message = (
                f"the members of communicator {comm.id}, {comm.ranks} of {processes} ranks, are"
                " unknown"
            )
            raise NoMeasurement(message, "record all ranks: the members are known from their files")
        most = max(comm.members, default=comm.ranks - 1)
        if most >= processes:
            message = (
                f"the pattern has rank {most} in communicator {comm.id}, and this job has"
                f" {processes} ranks"
            )
            raise NoMeasurement(message, f"start {most + 1} ranks, or choose a rule with --scale")
