"""A tuning without the plugin: NCCL's own variables, which hold for all sizes of a collective,
each measured in jobs of its own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median

from busbw.core.cells import Verdict, cells, usable
from busbw.core.collectives import BY_NAME
from busbw.core.errors import BusbwError, Exit, NoMeasurement
from busbw.core.networks import CHANNEL_VARIABLES
from busbw.core.result import Result
from busbw.core.sizes import counted
from busbw.tune.job import NO_ALGORITHMS
from busbw.tune.jobs import Checked, Jobs, by_size, in_turn
from busbw.tune.tuning import WRONG
from busbw.tune.types import Tuned, Tuning, pairs, text_of, together

LEAST, MOST, *_ = CHANNEL_VARIABLES
CHANNELS = ({LEAST: "8"}, {LEAST: "16"}, {MOST: "2"}, {MOST: "4"})
BY_COLLECTIVE = 22400  # from this NCCL on NCCL_ALGO and NCCL_PROTO can name a collective
SIM = "sim"
WORTH = 0.98
MAYBE_SLOWER = 1.05  # of single runs; the check is exact
FINALISTS = 2


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
        own = self.jobs.own()
        assert self.jobs.system is not None
        if not self.jobs.system.nccl and own.library.engine != SIM:
            raise NoMeasurement(
                f"the {own.library.engine} engine does not use NCCL, whose variables are tuned",
                NO_ALGORITHMS,
            )
        every = list(candidates(self.jobs.job.sweep.collective, self.jobs.system.nccl))
        self.say(
            f"{counted(len(every), 'candidate')}, each in a run between two of NCCL's choice; then"
            f" {4 * self.rounds} runs at most"
        )
        scores = {}
        for variables in every:
            name = text_of(variables)
            try:
                seen = self.jobs.sweep(variables)
            except BusbwError as error:
                if error.exit is Exit.USAGE:
                    raise
                self._failed[name] = error.message
                self.say(f"{name} failed and is dropped: {error.message}")
                continue
            if seen.wrong():
                self._failed[name] = WRONG
                self.say(f"{name} is dropped: {WRONG}")
                continue
            before, own = own, self.jobs.own()
            ratios = _ratios(before, seen, own)
            self.say(
                f"{name}: {together(ratios):.3f} of the time of NCCL's choice, at worst"
                f" {max(ratios):.3f}"
            )
            if together(ratios) < WORTH and max(ratios) < MAYBE_SLOWER:
                scores[name] = together(ratios), variables
        finalists = sorted(scores.values(), key=lambda pair: pair[0])[:FINALISTS]
        for _, variables in finalists:
            found = self._checked(variables)
            if found is not None:
                return self._outcome(own, variables, found)
        return self._outcome(own, {}, {})

    def _checked(self, variables: dict[str, str]) -> dict[int, Checked] | None:
        """Each size of the check; None if one is slower or has wrong data, or none is faster."""
        self.say(f"checking {text_of(variables)} with new ranks: {2 * self.rounds} runs")
        checked = in_turn(self.jobs, lambda: self.jobs.sweep(variables), self.rounds)
        found = by_size(checked)
        bad = any(size.slower or size.wrong for size in found.values())
        return None if bad or not checked.comparison.of(Verdict.FASTER) else found

    def _outcome(self, own: Result, variables: dict[str, str], found: dict[int, Checked]) -> Tuning:
        assert self.jobs.system is not None
        sizes = []
        for row in own.rows:
            gain = found[row.size_bytes].gain if row.size_bytes in found else None
            cell = row.out_of_place or row.in_place
            own_s = gain.default_s if gain else cell.time_s if cell else 0.0
            sizes.append(
                Tuned(
                    size_bytes=row.size_bytes,
                    own=None,
                    own_s=own_s,
                    candidates=0,
                    gain=gain,
                    check=gain,
                )
            )
        collective = self.jobs.job.sweep.collective
        findings = list(self.jobs.findings.values())
        return Tuning(
            collective=collective,
            system=self.jobs.system,
            sizes=sizes,
            variables=variables,
            dropped=self._failed,
            findings=findings,
        )


def candidates(collective: str, nccl: int) -> Iterator[dict[str, str]]:
    """The variables to try with a version of NCCL (0: a simulation).

    They name the collective where NCCL can read that.
    """
    prefix = f"{BY_NAME[collective].title.lower()}:" if not 0 < nccl < BY_COLLECTIVE else ""
    for choice in pairs(collective):
        yield {"NCCL_ALGO": prefix + choice.algorithm, "NCCL_PROTO": prefix + choice.protocol}
    yield from CHANNELS


def _ratios(before: Result, seen: Result, after: Result) -> list[float]:
    """For each cell the time as a share of that of NCCL's choice, before and after."""
    times = [
        {key: figure.time_s for key, figure in cells(result) if usable(figure.time_s)}
        for result in (before, seen, after)
    ]
    first, own, last = times
    return [
        time_s / median((first[key], last[key]))
        for key, time_s in own.items()
        if key in first and key in last
    ] or [1.0]
