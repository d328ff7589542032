"""The jobs of a tuning, each with new ranks.

A job is a search, or a sweep with NCCL's choice or with the tuned one. The check runs sweeps of
both in turn and compares them as `busbw compare` does.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from busbw.core.comparison import ComparedCell, Comparison
from busbw.core.env import temporarily
from busbw.core.errors import BusbwError, Exit, NoMeasurement, UsageError
from busbw.core.finding import RunFinding, Verdict
from busbw.core.rank_messages import Working
from busbw.core.result import Outcome, Result
from busbw.core.sizes import short_size
from busbw.core.tuning import TuningChoice
from busbw.launch import environment
from busbw.measure.events import Event, Started
from busbw.measure.job import SweepJob
from busbw.measure.record import RunRecord
from busbw.measure.sink import Sink
from busbw.measure.start import run
from busbw.measure.target import LaunchTarget
from busbw.stats.compare import compare
from busbw.stats.judging import RELEVANT_DIFFERENCE, Limits
from busbw.tune.types import (
    Gain,
    Trial,
    Tried,
    Trying,
    TunedSystem,
    TuneJob,
    geometric_mean,
    slower_than_allowed,
)

MAX_FAILURES = 8  # candidates that may fail; each costs a start of all ranks
NCCL_SIDE, TUNED_SIDE = "NCCL's choice", "tuned"
# findings about the machines that make a tuning worth little
CONDITIONS = ("tcp_congestion", "machine_xid", "machine_fault", "machine", "crowded")


class SearchSink(Sink):
    """Passes messages on, and knows what a search is trying.

    `started` and `tried` are called after these events.
    """

    def __init__(
        self, shown: Sink, started: Callable[[Result], None], tried: Callable[[Trial], None]
    ) -> None:
        super().__init__(RunRecord())
        self.trying: Trying | None = None
        self._shown, self._started, self._tried = shown, started, tried

    @property
    def progress(self) -> bool:
        return self._shown.progress

    def working(self, work: Working) -> None:
        self._shown.working(work)

    def take(self, event: Event) -> None:
        super().take(event)
        if isinstance(event, Started) and isinstance(event.result, Result):
            self._started(event.result)
        elif isinstance(event, Trying):
            self.trying = event
        elif isinstance(event, Tried):
            # What fails from here on is no candidate's fault, such as a full disk.
            self.trying = None
            self._tried(event.trial)

    def note(self, text: str) -> None:
        self._shown.note(text)

    def error(self, text: str) -> None:
        self._shown.error(text)


@dataclass(slots=True)
class Jobs:
    """Starts jobs like `job`, and reports what happens to `sink`."""

    job: TuneJob
    where: LaunchTarget
    sink: Sink
    judge: Callable[[TunedSystem], None] = lambda _: None  # raises if it is the wrong system
    system: TunedSystem | None = None  # what jobs run on; known when the first one has started
    # variables of the ranks; known when the first job has started
    environment: dict[str, str] = field(default_factory=dict)
    dropped: dict[TuningChoice, str] = field(default_factory=dict)
    findings: dict[str, RunFinding] = field(
        default_factory=dict
    )  # of the check with new ranks, by id

    def search(self, variables: Mapping[str, str], tried: Callable[[Trial], None]) -> None:
        """Search at all sizes.

        A candidate during which the job fails is dropped, and the search goes on with new ranks.

        Raises what ended the job if no candidate was running, or too many have failed.
        """
        done: list[int] = []

        def record(trial: Trial) -> None:
            done.append(trial.size_bytes)
            tried(trial)

        while True:
            listener = SearchSink(self.sink, self._started, record)
            job = msgspec.structs.replace(self.job, done=list(done), dropped=list(self.dropped))
            try:
                self._run(job, variables, listener)
            except BusbwError as error:
                self._drop(listener.trying, error)
            else:
                return

    def _drop(self, trying: Trying | None, error: BusbwError) -> None:
        """Drop the candidate that was running; raises the error if there is none."""
        if trying is None or trying.choice is None:
            raise error
        if error.exit is Exit.USAGE or len(self.dropped) >= MAX_FAILURES:
            raise error
        size = short_size(trying.size_bytes)
        self.dropped[trying.choice] = f"at {size}: {error.message}"
        self.sink.note(f"note: {trying.choice} at {size} failed and is dropped: {error.message}")

    def sweep(self, variables: Mapping[str, str], table: str = "") -> Result:
        """One sweep as `busbw run` makes it."""
        fields = {name: getattr(self.job, name) for name in SweepJob.__struct_fields__}
        job = SweepJob(**{**fields, "table": table})
        listener = SearchSink(self.sink, self._started, lambda _: None)
        result = self._run(job, variables, listener)
        if not isinstance(result, Result):
            raise NoMeasurement("the sweep ended without a result", "run it alone: busbw run")
        return result

    def own(self) -> Result:
        """One sweep with NCCL's choice.

        NoMeasurement if its data is wrong, as no table can repair that.
        """
        result = self.sweep({})
        if result.wrong():
            raise NoMeasurement(
                "ranks receive wrong data with NCCL's own choice",
                f"find the fault first: busbw run {result.spec.collective}",
            )
        return result

    def _started(self, result: Result) -> None:
        if self.system is None:
            system = system_of(result)
            self.judge(system)
            self.system, self.environment = system, result.environment

    def _run(
        self, job: SweepJob, variables: Mapping[str, str], listener: SearchSink
    ) -> Outcome | None:
        if environment.detect(os.environ) is not None:
            raise UsageError(
                "this process is a rank of a running job, but busbw tune starts ranks several"
                " times",
                "start it without mpirun",
            )
        with temporarily(variables):
            return run(job, self.where, listener)


def system_of(result: Result) -> TunedSystem:
    """What a result was measured on."""
    devices = result.world.devices
    names = " and ".join(sorted({device.name for device in devices}))
    hosts = len({device.host for device in devices})
    return TunedSystem(
        device=names,
        ranks=result.world.ranks,
        hosts=hosts,
        nccl=result.library.nccl,
        network=result.library.network,
    )


Side = Callable[[], Result]


@dataclass(frozen=True, slots=True)
class CheckedSize:
    """One size in the check: the gain out of place, whether any placement is slower by over 2 %,
    whether both together take less time, and whether ranks received wrong data when tuned.
    """

    gain: Gain
    slower: bool
    shorter: bool
    wrong: bool


@dataclass(frozen=True, slots=True)
class TuningCheck:
    """All runs compared, and the sizes at which ranks received wrong data when tuned."""

    comparison: Comparison
    wrong: frozenset[int]


def run_in_turn(jobs: Jobs, tuned: Side, rounds: int) -> TuningCheck:
    """NCCL's choice and `tuned`, each `rounds` times, in the order A B B A A B.

    `jobs.findings` gets what is unusual about the machines.
    """
    results: dict[str, list[tuple[str, Result]]] = {NCCL_SIDE: [], TUNED_SIDE: []}
    sides: list[tuple[str, Side]] = [(NCCL_SIDE, jobs.own), (TUNED_SIDE, tuned)]
    for _ in range(rounds):
        for name, side in sides:
            results[name].append((name, side()))
        sides.reverse()
    for _, result in (*results[NCCL_SIDE], *results[TUNED_SIDE]):
        for finding in result.findings:
            if finding.id in CONDITIONS and finding.verdict in (Verdict.WARN, Verdict.FAIL):
                jobs.findings[finding.id] = finding
    wrong = frozenset(size for _, result in results[TUNED_SIDE] for size in result.wrong_sizes())
    return TuningCheck(
        compare(results[NCCL_SIDE], results[TUNED_SIDE], Limits(tolerance=RELEVANT_DIFFERENCE)),
        wrong,
    )


def by_size(check: TuningCheck) -> dict[int, CheckedSize]:
    """Each size that both sides have."""
    cells_of: dict[int, list[ComparedCell]] = {}
    for cell in check.comparison.cells:
        if cell.ratio is not None:
            cells_of.setdefault(cell.key.size_bytes, []).append(cell)
    return {size: _summarize(cells, wrong=size in check.wrong) for size, cells in cells_of.items()}


def _summarize(cells: Sequence[ComparedCell], *, wrong: bool) -> CheckedSize:
    ratios = [cell.ratio or 1.0 for cell in cells]
    first = cells[0]  # out of place
    gain = Gain(
        default_s=first.a_s or 0.0,
        choice_s=first.b_s or 0.0,
        ratio=ratios[0],
        low=first.low,
        high=first.high,
        p=first.p or 1.0,
    )
    return CheckedSize(gain, slower_than_allowed(ratios), geometric_mean(ratios) < 1, wrong)


def check(jobs: Jobs, table: str, variables: Mapping[str, str], rounds: int) -> TuningCheck:
    """NCCL's choice against the table and the variables."""
    return run_in_turn(jobs, lambda: jobs.sweep(variables, table), rounds)
