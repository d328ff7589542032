"""One tuning from start to end: search, try settings, write the table, check it with new ranks,
and drop the rules that gain nothing then.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from busbw.core.comparison import ComparisonVerdict
from busbw.core.errors import BusbwError, Exit
from busbw.core.sizes import counted
from busbw.core.tuner_table import TunerTable
from busbw.stats.judging import Limits
from busbw.tune import table_file, validate
from busbw.tune.jobs import CheckedSize, Jobs, TuningCheck, by_size, check
from busbw.tune.types import (
    Gain,
    Trial,
    TunedSize,
    TunedSystem,
    Tuning,
    adjust_p_values,
    compute_gain,
    geometric_mean,
    is_faster,
    variables_text,
)

# A setting must shorten the times by 3 % on average, because it takes threads or multiprocessors
# from the user's program.
MAX_TIME_SHARE = 0.97
AS_FAST = "NCCL's choice is as fast"
SLOWER_REASON = "slower with new ranks"
NO_GAIN = "no gain with new ranks"
WRONG_DATA_REASON = "wrong data with new ranks"

Step = TypeVar("Step")


@dataclass(slots=True)
class TableTuner:
    """Tunes one collective."""

    jobs: Jobs
    file: Path
    # the table in the file: its rules for other collectives stay, and if it has variables, the
    # search uses these and no others
    before: TunerTable | None
    planned: int  # number of sizes
    rounds: int
    limits: Limits
    try_settings: bool
    say: Callable[[str], None]  # gets messages
    trial: Callable[[TunedSize], None]  # called after each size
    written: bool = field(default=False, init=False)  # whether the file has anything of this tuning
    _failed: dict[str, str] = field(default_factory=dict, init=False)

    def tune(self) -> Tuning:
        """The outcome; the file is written after each size and at the end.

        Raises what ended a job of NCCL's own choice.
        """
        fixed = table_file.fixed_variables(self.before, str(self.file)) if self.before else {}
        plain = self._search(fixed, first=True)
        best, variables = plain, fixed
        if self.try_settings and not fixed:
            for setting in validate.candidates(self._system.network):
                self.say(f"again with {variables_text(setting)}")
                sizes = self._unless_failed(setting, partial(self._search, setting, first=False))
                if sizes and _share(sizes, plain) < MAX_TIME_SHARE * _share(best, plain):
                    best, variables = sizes, setting
        if variables and not fixed:
            tuning = self._with_variables(best, variables)
            if tuning:
                return tuning
        return self._without(plain, fixed)

    def _unless_failed(
        self, setting: Mapping[str, str], step: Callable[[], Step | None]
    ) -> Step | None:
        """What a step with a setting returns; None if a job failed, which rules out the setting."""
        try:
            return step()
        except BusbwError as error:
            if error.exit is Exit.USAGE:
                raise
            self._failed[variables_text(setting)] = error.message
            self.say(f"{variables_text(setting)} failed and is not used: {error.message}")
            return None

    def _search(self, variables: Mapping[str, str], *, first: bool) -> list[TunedSize]:
        """Search at all sizes. In the `first` search the table is written after each."""
        trials: list[Trial] = []

        def record(trial: Trial) -> None:
            trials.append(trial)
            sizes = self._judge(trials)
            self.trial(sizes[-1])
            if first:
                self._write(sizes, variables, checked=False)

        self.jobs.search(variables, record)
        return self._judge(trials)

    def _judge(self, trials: list[Trial]) -> list[TunedSize]:
        """The sizes searched so far; the p-values are adjusted for all that are planned."""
        gains = {
            trial.size_bytes: compute_gain(trial.default_s, trial.choice_s, self.limits.confidence)
            for trial in trials
            if trial.choice
        }
        count = max(self.planned, len(trials))
        ps = adjust_p_values([unadjusted.p for unadjusted in gains.values()], count)
        for size_bytes, p in zip(gains, ps, strict=True):
            gains[size_bytes] = msgspec.structs.replace(gains[size_bytes], p=p)
        return [self._tuned(trial, gains.get(trial.size_bytes)) for trial in trials]

    def _tuned(self, trial: Trial, gain: Gain | None) -> TunedSize:
        kept = gain is not None and is_faster(gain, self.limits)
        return TunedSize(
            size_bytes=trial.size_bytes,
            own=trial.own,
            own_s=trial.own_s,
            candidates=trial.candidates,
            nodes=trial.nodes,
            choice=trial.choice,
            gain=gain,
            kept=kept,
            reason="" if kept else AS_FAST,
        )

    def _check(self, sizes: list[TunedSize], variables: Mapping[str, str]) -> TuningCheck:
        """Check with new ranks, and drop the choices that fail."""
        kept = counted(sum(size.kept for size in sizes), "size")
        self.say(f"checking {kept} with new ranks: {2 * self.rounds} runs")
        table = self._table(sizes, variables, checked=False)
        outcome = check(self.jobs, table.text(), variables, self.rounds)
        checked_sizes = by_size(outcome)
        for size in sizes:
            checked = checked_sizes.get(size.size_bytes)
            size.check = checked.gain if checked else None
            reason = _why_dropped(checked)
            if size.kept and reason:
                size.kept, size.reason = False, reason
        return outcome

    def _without(self, sizes: list[TunedSize], fixed: dict[str, str]) -> Tuning:
        """The outcome without new variables."""
        if fixed or any(size.kept for size in sizes):
            self._check(sizes, fixed)
        return self._outcome(sizes, fixed)

    def _with_variables(self, sizes: list[TunedSize], variables: dict[str, str]) -> Tuning | None:
        """The outcome with variables; None if a size loses over 2 % or is wrong, or none wins."""
        outcome = self._unless_failed(variables, partial(self._check, sizes, variables))
        if outcome is None:
            return None
        bad = any(checked.slower or checked.wrong for checked in by_size(outcome).values())
        if bad or not outcome.comparison.of(ComparisonVerdict.FASTER):
            self.say(
                f"{variables_text(variables)}: not used, as a size is slower by over 2 % or has"
                " wrong data, or none is faster"
            )
            return None
        return self._outcome(sizes, variables)

    def _outcome(self, sizes: list[TunedSize], variables: dict[str, str]) -> Tuning:
        if variables:  # the search has compared with NCCL's choice under these variables
            for size in sizes:
                size.gain = size.check
                size.reason = "" if size.reason == AS_FAST else size.reason
        self._write(sizes, variables, checked=True)
        dropped = {str(choice): reason for choice, reason in self.jobs.dropped.items()}
        dropped |= self._failed
        return Tuning(
            collective=self.jobs.job.sweep.collective,
            system=self._system,
            sizes=sizes,
            variables=variables,
            dropped=dropped,
            findings=list(self.jobs.findings.values()),
            file=str(self.file),
        )

    def _table(
        self, sizes: list[TunedSize], variables: Mapping[str, str], *, checked: bool
    ) -> TunerTable:
        return table_file.build(
            self._system, self.jobs.job.sweep, sizes, variables, self.before, checked=checked
        )

    def _write(
        self, sizes: list[TunedSize], variables: Mapping[str, str], *, checked: bool
    ) -> None:
        """Write the file; rules that were checked stay until new ones have been checked."""
        collective = self.jobs.job.sweep.collective
        if not checked and self.before and table_file.is_checked(self.before, collective):
            return
        table_file.write(self._table(sizes, variables, checked=checked), self.file)
        self.written = True

    @property
    def _system(self) -> TunedSystem:
        assert self.jobs.system is not None  # known since the first search
        return self.jobs.system


def _why_dropped(checked: CheckedSize | None) -> str:
    """Why the table has no rule for a size after the check; '' if it keeps its rule."""
    if checked is None:
        return NO_GAIN
    if checked.wrong:
        return WRONG_DATA_REASON
    if checked.slower:
        return SLOWER_REASON
    return "" if checked.shorter else NO_GAIN


def _share(sizes: list[TunedSize], plain: list[TunedSize]) -> float:
    """The times after a search as a share of those of NCCL's choice without variables: the
    geometric mean over sizes.
    """
    own_s = {size.size_bytes: size.own_s for size in plain}
    return geometric_mean(
        [size.expected_s / own_s[size.size_bytes] for size in sizes if size.size_bytes in own_s]
    )
