"""One rank's part of a tuning: search the fastest algorithm, protocol and number of channels for
every size, then measure its gain.

All candidates use the same communicator and buffers, and take turns with NCCL's own choice, a few
operations each.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from busbw.core.errors import NoMeasurement
from busbw.core.sizes import short_size
from busbw.core.sweep import series, sizes
from busbw.core.tuning import TuningChoice
from busbw.engines.base import Engine, Tuner
from busbw.engines.registry import EngineArguments, engine
from busbw.launch.control import Control
from busbw.measure import network, tuner_table
from busbw.measure.batches import Batches, HeldBatches
from busbw.measure.events import Emit, Ended, EnterPhase, Started, now
from busbw.measure.plan import Calls
from busbw.measure.process_groups import join_all
from busbw.measure.progress import Progress
from busbw.measure.sweep import allocate_buffers, running, settled
from busbw.tune.types import Trial, Tried, Trying, TuneJob, fastest, plainest

CHANNELS = (1, 2, 4, 8, 16, 32)
# A candidate is not tried if NCCL expects it to take so many times as long as the fastest.
HOPELESS_FACTOR = 8.0
BLOCK_OPERATIONS = 4  # operations of a candidate in one turn
LONG_S = 10e-3  # a turn has only one operation that takes longer
MIN_TURNS, MAX_TURNS = 2, 12  # in a round of the search
DUEL_TURNS = (8, 256)  # samples of each side in the last round
ROUNDS = (0.3, 0.3, 0.4)  # shares of the time: pairs, channels, and the measurement of the gain
SEARCHED_PAIRS = 2  # of algorithm and protocol, whose numbers of channels are searched
NO_ALGORITHMS = "use --engine nccl, torch on GPUs, or sim"

Turn = tuple[
    TuningChoice | None, list[list[float]]
]  # what ran, and seconds by local rank and operation


def tune(job: TuneJob, control: Control, emit: Emit, enter_phase: EnterPhase) -> None:
    """Run this process' part.

    `emit` is called on process 0 only, `enter_phase` before every phase.
    """
    party = join_all(control, "a tuning")
    row = engine(job.engine)
    opening = EngineArguments(
        control=control,
        spec=job.sweep,
        process=control.process,
        local=party.local,
        group=party.color,
        gpus=job.gpus_per_process,
        simulation=job.simulation,
    )
    enter_phase("init", job.engine)
    with tuner_table.steered(row.name, control), network.starting(job, control) as log:
        opened = row.open(opening)
    with running(opened):
        job = settled(job, opened)
        result, max_bytes = allocate_buffers(job, party, opened)
        result.library.network = network.agreed(job, control, result.library, log.networks)
        if control.process == 0:
            emit(Started(result))
        search = TuningSearch(job, opened, _tuner(opened), control, emit, enter_phase)
        for size in sizes(job.sweep, max_bytes):
            search.size(size)
        enter_phase("teardown", "")
        if control.process == 0:
            emit(Ended(now(), {}))


def _tuner(opened: Engine) -> Tuner:
    tuner = opened.tuner()
    if tuner is None or not opened.asynchronous:
        raise NoMeasurement(
            f"the {opened.name} engine has no algorithms to choose from on these ranks",
            NO_ALGORITHMS,
        )
    if opened.size < 2:
        raise NoMeasurement(
            "one rank sends nothing, so there is nothing to tune", "use two ranks or more"
        )
    return tuner


@dataclass
class TuningSearch:
    """Searches size by size. Process 0 decides which candidates stay."""

    job: TuneJob
    engine: Engine
    tuner: Tuner
    control: Control
    emit: Emit
    enter_phase: EnterPhase

    def __post_init__(self) -> None:
        """Bind the calls of the only series."""
        self._calls = Calls(
            self.job.sweep, next(series(self.job.sweep, self.engine.size)), self.engine.size
        )
        self._batches: Batches = HeldBatches(self.engine, self.job.sweep)
        self._name = self.job.sweep.collective
        self._done = set(self.job.done)

    def size(self, size: int) -> None:
        """Search at one size, unless this or one that rounds to it was searched before."""
        call = self._calls.at(size, in_place=False)
        self._bytes = self._calls.moved_bytes(call)[0]
        self._launch = self.engine.bind(call)
        if not self._bytes or self._bytes in self._done:
            return
        self._done.add(self._bytes)
        self._progress = Progress(self._bytes, BLOCK_OPERATIONS)
        self._batches.progress = self._progress
        self.enter_phase("tuning", short_size(self._bytes), self._progress)
        self._time_once(None)
        nodes, costs = self.tuner.nodes(), self._common_costs()
        if not costs:
            raise NoMeasurement(
                f"NCCL did not ask its tuner for {self._name} of {short_size(self._bytes)}",
                "busbw tune needs NCCL 2.24 or newer; busbw tune ... --variables works with older"
                " ones",
            )
        self._search(costs, nodes)

    def _common_costs(self) -> dict[TuningChoice, float]:
        """NCCL's costs of what all ranks can run: else ranks would choose differently."""
        mine, *others = self.control.allgather(self.tuner.costs())
        common = set(mine).intersection(*others)
        return {choice: cost for choice, cost in mine.items() if choice in common}

    def _search(self, costs: dict[TuningChoice, float], nodes: int) -> None:
        """Search and measure the gain.

        NCCL's choice is also a candidate by name: busbw's network has a tuner that changes it.
        """
        own = min(costs, key=lambda choice: costs[choice])
        dropped = set(self.job.dropped)
        pairs = [
            pair
            for pair, cost in costs.items()
            if cost <= HOPELESS_FACTOR * costs[own] and pair not in dropped
        ]
        pairs_s, channels_s, duel_s = (share * self.job.seconds for share in ROUNDS)
        samples = self._round([None, *pairs], pairs_s)
        order = [
            own if choice is None else choice for choice in fastest(samples, SEARCHED_PAIRS + 1)
        ]
        best = self.control.bcast(list(dict.fromkeys(order))[:SEARCHED_PAIRS])
        with_channels = [
            TuningChoice(pair.algorithm, pair.protocol, channels)
            for pair in best
            for channels in CHANNELS
        ]
        with_channels = [choice for choice in with_channels if choice not in dropped]
        best = [pair for pair in best if pair not in dropped]
        samples = self._round([None, *best, *with_channels], channels_s / 2)
        left = self.control.bcast(fastest(samples, max(len(samples) // 4, 2)))
        left = [choice for choice in left if choice is not None]
        samples = self._round([None, *left], channels_s / 2)
        winner = self.control.bcast(plainest(samples) if samples else None)
        own_s = median(samples[None]) if samples else 0.0
        trial = Trial(
            size_bytes=self._bytes,
            own=own,
            own_s=own_s,
            candidates=len(pairs) + len(with_channels),
            nodes=nodes,
            choice=winner,
        )
        if winner is not None:
            samples = self._round([None, winner], duel_s, DUEL_TURNS)
            trial.default_s, trial.choice_s = samples.get(None, []), samples.get(winner, [])
        self.tuner.steer(self._name, self._bytes, None)
        if self.control.process == 0:
            self.emit(Tried(trial))

    def _round(
        self,
        choices: Sequence[TuningChoice | None],
        seconds: float,
        turns: tuple[int, int] = (MIN_TURNS, MAX_TURNS),
    ) -> dict[TuningChoice | None, list[float]]:
        """The samples of each choice on process 0, {} on others.

        All take turns; the order is reversed in every second turn.
        """
        once_s = {choice: self._time_once(choice) for choice in choices}
        block = {
            choice: 1 if time_s > LONG_S else BLOCK_OPERATIONS for choice, time_s in once_s.items()
        }
        turn_s = sum(time_s * block[choice] for choice, time_s in once_s.items())
        min_turns, max_turns = turns
        count = max(min_turns, min(max_turns, int(seconds / max(turn_s, 1e-9))))
        end_s, record = time.monotonic() + seconds, list[Turn]()
        for number in range(count):
            if number >= min_turns and self.control.bcast(time.monotonic() > end_s):
                break
            for choice in choices if number % 2 == 0 else reversed(choices):
                self._steer(choice)
                batch = self._batches.take([self._launch] * block[choice], once_s[choice])
                record.append((choice, batch.durations_s))
        return _longest(self.control.gather(record))

    def _time_once(self, choice: TuningChoice | None) -> float:
        """Seconds of one operation, the same on all ranks.

        Another goes before it: the first of a choice may create connections.
        """
        self._steer(choice)
        for _ in range(2):
            start_s = self.engine.clock()
            self._launch()
            self.engine.synchronize(self.job.sweep.timeout)
            time_s = self.engine.clock() - start_s
            self._progress.done += 1
        return self.control.reduce_all([time_s], "max")[0]

    def _steer(self, choice: TuningChoice | None) -> None:
        if self.control.process == 0:
            self.emit(Trying(self._bytes, choice))
        self.tuner.steer(self._name, self._bytes, choice)


def _longest(
    turns_by_process: Sequence[Sequence[Turn]] | None,
) -> dict[TuningChoice | None, list[float]]:
    """For each choice a duration of every turn, from the turns of all processes: the median over
    operations of the longest over ranks.

    Operations of one turn are more alike than those of different turns. Counted singly, they would
    make equal choices look different.
    """
    samples: dict[TuningChoice | None, list[float]] = {}
    for turns in zip(*(turns_by_process or []), strict=True):
        choice = turns[0][0]
        ranks = [durations for _, local in turns for durations in local]
        longest = [max(durations) for durations in zip(*ranks, strict=True)]
        samples.setdefault(choice, []).append(median(longest))
    return samples
