"""A tuning without the plugin: NCCL's own variables, which hold for all sizes of a collective.
Each candidate is measured in a job of its own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median

from busbw.core.cells import CellKey, cells, usable
from busbw.core.collectives import BY_NAME
from busbw.core.comparison import ComparisonVerdict
from busbw.core.errors import BusbwError, Exit, NoMeasurement
from busbw.core.networks import CHANNEL_VARIABLES
from busbw.core.result import Result
from busbw.core.sizes import counted
from busbw.tune.job import NO_ALGORITHMS
from busbw.tune.jobs import CheckedSize, Jobs, by_size, run_in_turn
from busbw.tune.tuning import WRONG_DATA_REASON
from busbw.tune.types import TunedSize, Tuning, geometric_mean, pairs, variables_text

MIN_CHANNELS, MAX_CHANNELS, *_ = CHANNEL_VARIABLES
CHANNELS = ({MIN_CHANNELS: "8"}, {MIN_CHANNELS: "16"}, {MAX_CHANNELS: "2"}, {MAX_CHANNELS: "4"})
# from this version of NCCL on, NCCL_ALGO and NCCL_PROTO can name a collective
BY_COLLECTIVE = 22400
SIM = "sim"
MAX_FINALIST_TIME = 0.98  # of the time of NCCL's choice: the most that a finalist takes
MAYBE_SLOWER = 1.05  # of single runs; the check is exact
MAX_FINALISTS = 2


@dataclass(slots=True)
class VariablesTuner:
    """Tunes one collective. `say` gets messages."""

    jobs: Jobs
    rounds: int
    say: Callable[[str], None]
    _failed: dict[str, str] = field(default_factory=dict, init=False)

    def tune(self) -> Tuning:
        """The variables that help most without making a measured size slower by over 2 %; none
        if there are no such.
        """
        default = self.jobs.own()
        assert self.jobs.system is not None
        if not self.jobs.system.nccl and default.library.engine != SIM:
            raise NoMeasurement(
                f"the {default.library.engine} engine does not use NCCL, whose variables are tuned",
                NO_ALGORITHMS,
            )
        settings = list(candidates(self.jobs.job.sweep.collective, self.jobs.system.nccl))
        self.say(
            f"{counted(len(settings), 'candidate')}, each in a run between two of NCCL's choice;"
            f" then {4 * self.rounds} runs at most"
        )
        scores: list[tuple[float, dict[str, str]]] = []
        for variables in settings:
            result = self._sweep(variables)
            if result is None:
                continue
            before, default = default, self.jobs.own()
            ratios = _ratios(before, result, default)
            mean, worst = geometric_mean(ratios), max(ratios)
            self.say(
                f"{variables_text(variables)}: {mean:.3f} of the time of NCCL's choice, at worst"
                f" {worst:.3f}"
            )
            if mean < MAX_FINALIST_TIME and worst < MAYBE_SLOWER:
                scores.append((mean, variables))
        finalists = sorted(scores, key=lambda score: score[0])[:MAX_FINALISTS]
        for _, variables in finalists:
            checked_sizes = self._check(variables)
            if checked_sizes is not None:
                return self._outcome(default, variables, checked_sizes)
        return self._outcome(default, {}, {})

    def _sweep(self, variables: dict[str, str]) -> Result | None:
        """A sweep with these variables; None if it failed or has wrong data, which drops them."""
        name = variables_text(variables)
        try:
            result = self.jobs.sweep(variables)
        except BusbwError as error:
            if error.exit is Exit.USAGE:
                raise
            self._failed[name] = error.message
            self.say(f"{name} failed and is dropped: {error.message}")
            return None
        if result.wrong():
            self._failed[name] = WRONG_DATA_REASON
            self.say(f"{name} is dropped: {WRONG_DATA_REASON}")
            return None
        return result

    def _check(self, variables: dict[str, str]) -> dict[int, CheckedSize] | None:
        """Each size of the check; None if one is slower or has wrong data, or none is faster."""
        self.say(f"checking {variables_text(variables)} with new ranks: {2 * self.rounds} runs")
        check = run_in_turn(self.jobs, lambda: self.jobs.sweep(variables), self.rounds)
        sizes = by_size(check)
        bad = any(size.slower or size.wrong for size in sizes.values())
        return None if bad or not check.comparison.of(ComparisonVerdict.FASTER) else sizes

    def _outcome(
        self, default: Result, variables: dict[str, str], checked_sizes: dict[int, CheckedSize]
    ) -> Tuning:
        assert self.jobs.system is not None
        sizes = []
        for row in default.rows:
            size = TunedSize(size_bytes=row.size_bytes, own=None, own_s=0.0, candidates=0)
            cell = row.out_of_place or row.in_place
            if row.size_bytes in checked_sizes:
                size.gain = size.check = checked_sizes[row.size_bytes].gain
                size.own_s = size.gain.default_s
            elif cell:
                size.own_s = cell.time_s
            sizes.append(size)
        return Tuning(
            collective=self.jobs.job.sweep.collective,
            system=self.jobs.system,
            sizes=sizes,
            variables=variables,
            dropped=self._failed,
            findings=list(self.jobs.findings.values()),
        )


def candidates(collective: str, nccl: int) -> Iterator[dict[str, str]]:
    """The variables to try with a version of NCCL (0: a simulation).

    They name the collective where NCCL can read that.
    """
    prefix = f"{BY_NAME[collective].title.lower()}:" if not 0 < nccl < BY_COLLECTIVE else ""
    for choice in pairs(collective):
        yield {"NCCL_ALGO": prefix + choice.algorithm, "NCCL_PROTO": prefix + choice.protocol}
    yield from CHANNELS


def _ratios(before: Result, result: Result, after: Result) -> list[float]:
    """The times of `result` as shares of NCCL's choice, measured `before` and `after` it."""
    before_s, after_s = _times_s(before), _times_s(after)
    ratios = [
        time_s / median((before_s[key], after_s[key]))
        for key, time_s in _times_s(result).items()
        if key in before_s and key in after_s
    ]
    return ratios or [1.0]


def _times_s(result: Result) -> dict[CellKey, float]:
    return {key: figure.time_s for key, figure in cells(result) if usable(figure.time_s)}
