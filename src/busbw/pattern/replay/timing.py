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
from busbw.engines.registry import EngineArguments, engine
from busbw.measure.events import EnterPhase
from busbw.measure.process_groups import Party
from busbw.measure.progress import Progress
from busbw.pattern.replay.kind import ReplayJob
from busbw.pattern.replay.plan import Operation, ReplayPlan, warm_up

BATCH = 48  # operations between two waits: NCCL keeps the start and end of 64 for each channel


@dataclass(slots=True)
class ReplayEngines:
    """The engines of this process by communicator."""

    engines: dict[int, Engine]

    def close(self, *, abort: bool = False) -> None:
        for opened in self.engines.values():
            opened.close(abort=abort)


def open_engines(
    job: ReplayJob, party: Party, comms: Sequence[Comm], plan: ReplayPlan
) -> ReplayEngines:
    """An engine for each communicator that this process is a member of.

    Collective over all processes.
    """
    if job.engine == "torch":
        from busbw.engines.torch_rank import TorchRank

        TorchRank(party.world, party.local, 0, party.world.process, parent=True)
    opened = ReplayEngines({})
    # A reduce, because PyTorch's engine has one buffer more for it than for others.
    spec = SweepSpec(collective="reduce", check=0)
    for comm in comms:
        members = comm.members or list(range(comm.ranks))
        is_member = party.world.process in members
        control = party.world
        if len(members) != party.world.processes:
            control = party.world.split(int(is_member))
        if not is_member:
            continue
        opening = EngineArguments(
            control=control,
            spec=spec,
            process=party.world.process,
            local=party.local,
            group=0,
            gpus=1,
            simulation={},
        )
        comm_engine = engine(job.engine).open(opening)
        opened.engines[comm.id] = comm_engine
        size = max(plan.buffer_bytes(comm.id), 1)
        comm_engine.allocate(size, size)
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
        opened: ReplayEngines,
        operations: Sequence[Operation],
        enter_phase: EnterPhase,
    ) -> None:
        self._job, self._opened, self._enter = job, opened, enter_phase
        engines = opened.engines
        launches: dict[tuple[int, int], Launch] = {}
        self._steps = []
        for number, operation in enumerate(operations):
            comm_engine = engines.get(operation.comm)
            if comm_engine is None:
                continue
            key = (operation.comm, id(operation.call))
            if key not in launches:
                launches[key] = comm_engine.bind(operation.call)
            after: tuple[Engine, ...] = ()
            if comm_engine.asynchronous:
                after = tuple(engines[comm] for comm in operation.after if comm in engines)
            self._steps.append(_Step(number, comm_engine, launches[key], after))
        self._largest_bytes = max(
            (
                max(operation.call.send, operation.call.recv) * operation.call.dtype.itemsize
                for operation in operations
            ),
            default=0,
        )
        self._warm = [
            (engines[operation.comm], operation)
            for operation in warm_up(operations)
            if operation.comm in engines
        ]

    def prepare(self) -> None:
        """Run each kind of operation once: the first makes connections."""
        progress = Progress(self._largest_bytes, 1, None)
        self._enter("warm-up", f"{len(self._warm)} operations", progress)
        for comm_engine, operation in self._warm:
            comm_engine.bind(operation.call)()
            comm_engine.synchronize(self._job.replay.timeout)
            progress.done += 1

    def play(self, repeat: int, *, marks: bool) -> tuple[float, dict[int, float]]:
        """Run all operations. Returns the seconds of all together, and with `marks` the
        microseconds of each operation by its number.
        """
        progress = Progress(self._largest_bytes, BATCH, None)
        self._enter("timing", f"repeat {repeat + 1}", progress)
        durations_us: dict[int, float] = {}
        start = time.perf_counter()
        for first in range(0, len(self._steps), BATCH):
            batch = self._steps[first : first + BATCH]
            if marks:
                self._run_marked(batch, durations_us)
            else:
                self._run(batch)
            progress.done += 1
        return time.perf_counter() - start, durations_us

    def _run(self, batch: Sequence[_Step]) -> None:
        for step in batch:
            for other in step.after:
                step.engine.follow(other)
            step.launch()
        self._wait()

    def _run_marked(self, batch: Sequence[_Step], durations_us: dict[int, float]) -> None:
        """Run with a mark before and after each operation; adds their times to `durations_us`."""
        for at, step in enumerate(batch):
            for other in step.after:
                step.engine.follow(other)
            step.engine.mark(2 * at)
            step.launch()
            step.engine.mark(2 * at + 1)
        self._wait()
        for at, step in enumerate(batch):
            durations_us[step.number] = step.engine.elapsed_s(2 * at, 2 * at + 1)[0] * 1e6

    def _wait(self) -> None:
        for comm_engine in self._opened.engines.values():
            comm_engine.synchronize(self._job.replay.timeout)


def check_members(comms: Sequence[Comm], processes: int) -> None:
    """NoMeasurement if a communicator's members are unknown or not in this job, or a rank of the
    job is in no communicator.
    """
    used = {member for comm in comms for member in comm.members or range(comm.ranks)}
    idle = [rank for rank in range(processes) if rank not in used]
    if idle:
        raise NoMeasurement(
            f"rank {idle[0]} of {processes} is in no communicator of the pattern",
            "the record of that rank is missing: busbw show FILE says what was read",
        )
    for comm in comms:
        if not comm.members and comm.ranks != processes:
            message = (
                f"the members of communicator {comm.id}, {comm.ranks} of {processes} ranks,"
                " are unknown"
            )
            raise NoMeasurement(message, "record all ranks: the members are known from their files")
        last = max(comm.members, default=comm.ranks - 1)
        if last >= processes:
            message = (
                f"the pattern has rank {last} in communicator {comm.id}, and this job has"
                f" {processes} ranks"
            )
            raise NoMeasurement(message, f"start {last + 1} ranks, or choose a rule with --scale")
