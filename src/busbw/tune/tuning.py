"""One tuning from start to end: search, try settings, write the table, check it with new ranks,
and drop what does not hold.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from busbw.core.cells import Verdict
from busbw.core.errors import BusbwError, Exit
from busbw.core.sizes import counted
from busbw.core.tuner_table import Table
from busbw.stats.judging import Limits
from busbw.tune import table_file, validate
from busbw.tune.jobs import Check, Jobs, by_size, check
from busbw.tune.types import (
    Trial,
    Tuned,
    TunedSystem,
    Tuning,
    adjusted,
    gain,
    is_faster,
    text_of,
    together,
)

# a setting must shorten the times by 3 % on average, as it takes threads or multiprocessors from
# the user's program
WORTH = 0.97
AS_FAST = "NCCL's choice is as fast"
SLOWER, NO_GAIN, WRONG = (
    "slower with new ranks",
    "no gain with new ranks",
    "wrong data with new ranks",
)

Step = TypeVar("Step")


@dataclass(slots=True)
class TableTuner:
    """Tunes one collective.

    `trial` is called after each size, `planned` is how many there are; `say` gets messages.

    `before` is the table in the file, whose other collectives stay. With its variables the search
    is made once. `written` says whether the file has anything of this tuning.
    """

    jobs: Jobs
    file: Path
    before: Table | None
    planned: int
    rounds: int
    limits: Limits
    try_settings: bool
    say: Callable[[str], None]
    trial: Callable[[Tuned], None]
    written: bool = field(default=False, init=False)
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
                self.say(f"again with {text_of(setting)}")
                found = self._unless_failed(setting, partial(self._search, setting, first=False))
                if found and _share(found, plain) < WORTH * _share(best, plain):
                    best, variables = found, setting
        if variables and not fixed:
            tuning = self._with_variables(best, variables)
            if tuning:
                return tuning
        return self._without(plain, fixed)

    def _unless_failed(
        self, setting: Mapping[str, str], step: Callable[[], Step | None]
    ) -> Step | None:
        """What a step with a setting returns; None if a job failed, which rules out the setting
        alone.
        """
        try:
            return step()
        except BusbwError as error:
            if error.exit is Exit.USAGE:
                raise
            self._failed[text_of(setting)] = error.message
            self.say(f"{text_of(setting)} failed and is not used: {error.message}")
            return None

    def _search(self, variables: Mapping[str, str], *, first: bool) -> list[Tuned]:
        """Search at all sizes. In the `first` search the table is written after each."""
        trials: list[Trial] = []

        def tried(trial: Trial) -> None:
            trials.append(trial)
            sizes = self._judged(trials)
            self.trial(sizes[-1])
            if first:
                self._write(sizes, variables, checked=False)

        self.jobs.search(variables, tried)
        return self._judged(trials)

    def _judged(self, trials: list[Trial]) -> list[Tuned]:
        """The sizes searched so far; the p-values are adjusted for all that are planned."""
        gains = [
            gain(one.default_s, one.choice_s, self.limits.confidence) if one.choice else None
            for one in trials
        ]
        ps = iter(adjusted([found.p for found in gains if found], max(self.planned, len(trials))))
        sizes = []
        for one, found in zip(trials, gains, strict=True):
            final = msgspec.structs.replace(found, p=next(ps)) if found else None
            kept = final is not None and is_faster(final, self.limits)
            sizes.append(
                Tuned(
                    size_bytes=one.size_bytes,
                    own=one.own,
                    own_s=one.own_s,
                    candidates=one.candidates,
                    nodes=one.nodes,
                    choice=one.choice,
                    gain=final,
                    kept=kept,
                    reason="" if kept else AS_FAST,
                )
            )
        return sizes

    def _check(self, sizes: list[Tuned], variables: Mapping[str, str]) -> Check:
        """Check with new ranks, and drop the choices that fail."""
        self.say(
            f"checking {counted(sum(size.kept for size in sizes), 'size')} with new ranks:"
            f" {2 * self.rounds} runs"
        )
        checked = check(
            self.jobs, self._made(sizes, variables, checked=False).text(), variables, self.rounds
        )
        found = by_size(checked)
        for size in sizes:
            seen = found.get(size.size_bytes)
            size.check = seen.gain if seen else None
            if size.kept and (seen is None or seen.wrong or seen.slower or not seen.shorter):
                size.kept, size.reason = (
                    False,
                    (WRONG if seen and seen.wrong else SLOWER if seen and seen.slower else NO_GAIN),
                )
        return checked

    def _without(self, sizes: list[Tuned], fixed: dict[str, str]) -> Tuning:
        """The outcome without new variables."""
        if fixed or any(size.kept for size in sizes):
            self._check(sizes, fixed)
        return self._outcome(sizes, fixed)

    def _with_variables(self, sizes: list[Tuned], variables: dict[str, str]) -> Tuning | None:
        """The outcome with variables; None if a size is slower by over 2 % or has wrong data, or
        none is faster.
        """
        checked = self._unless_failed(variables, partial(self._check, sizes, variables))
        if checked is None:
            return None
        if any(
            seen.slower or seen.wrong for seen in by_size(checked).values()
        ) or not checked.comparison.of(Verdict.FASTER):
            self.say(
                f"{text_of(variables)}: not used, as a size is slower by over 2 % or has wrong"
                " data, or none is faster"
            )
            return None
        return self._outcome(sizes, variables)

    def _outcome(self, sizes: list[Tuned], variables: dict[str, str]) -> Tuning:
        if variables:  # the search has compared with NCCL's choice under these variables
            for size in sizes:
                size.gain = size.check
                size.reason = "" if size.reason == AS_FAST else size.reason
        self._write(sizes, variables, checked=True)
        dropped = {
            str(choice): reason for choice, reason in self.jobs.dropped.items()
        } | self._failed
        return Tuning(
            collective=self.jobs.job.sweep.collective,
            system=self._system,
            sizes=sizes,
            variables=variables,
            dropped=dropped,
            findings=list(self.jobs.findings.values()),
            file=str(self.file),
        )

    def _made(self, sizes: list[Tuned], variables: Mapping[str, str], *, checked: bool) -> Table:
        return table_file.made(
            self._system, self.jobs.job.sweep, sizes, variables, self.before, checked=checked
        )

    def _write(self, sizes: list[Tuned], variables: Mapping[str, str], *, checked: bool) -> None:
        """Write the file; rules of this collective that were checked stay until new ones have
        been.
        """
        if (
            not checked
            and self.before
            and table_file.is_checked(self.before, self.jobs.job.sweep.collective)
        ):
            return
        table_file.write(self._made(sizes, variables, checked=checked), self.file)
        self.written = True

    @property
    def _system(self) -> TunedSystem:
        assert self.jobs.system is not None  # known since the first search
        return self.jobs.system


def _share(found: list[Tuned], plain: list[Tuned]) -> float:
    """The times that one search found, as a share of those of NCCL's choice without variables:
    the geometric mean over sizes.
    """
    own_s = {size.size_bytes: size.own_s for size in plain}
    return together(
        [size.expected_s / own_s[size.size_bytes] for size in found if size.size_bytes in own_s]
    )
