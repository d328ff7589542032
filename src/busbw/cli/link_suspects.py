"""The runs of `busbw link --suspect`: a collective over some of the hosts, as `busbw run` starts
it.
"""

from collections.abc import Callable, Sequence

from busbw.cli.shared_options import argv
from busbw.cli.streams import talk
from busbw.core.collectives import collective as collective_row
from busbw.core.errors import BusbwError, NoMeasurement, UsageError
from busbw.core.sweep import Sampling, SweepSpec
from busbw.core.version import __version__
from busbw.launch.hosts import Host
from busbw.link import suspects
from busbw.link.driver import now
from busbw.link.suspects import SLOW
from busbw.link.types import Run, Suspect, SuspectReport, bits_text
from busbw.measure.api import run

WAYS = ("hosts", "pairs")


class Search:
    """A search among `hosts`, whose slots are the ranks on each host. `save` gets the report
    after every run.
    """

    def __init__(
        self,
        way: str,
        collective: str,
        size: int,
        hosts: Sequence[Host],
        engine: str,
        ifname: str,
        save: Callable[[SuspectReport], None],
    ) -> None:
        if len(hosts) < 4:
            raise UsageError(
                f"--suspect: {len(hosts)} hosts cannot be compared",
                "give four or more, like --hosts h1:8,h2:8,h3:8,h4:8",
            )
        self._hosts, self._engine, self._ifname, self._save = hosts, engine, ifname, save
        self._spec = SweepSpec(
            collective=collective_row(collective).name,
            min_bytes=size,
            max_bytes=size,
            step_factor=2,
            sampling=Sampling(precision=0.0),
        )
        self.report = SuspectReport(
            way=way,
            collective=self._spec.collective,
            size_bytes=size,
            hosts=[host.name for host in hosts],
            busbw=__version__,
            argv=argv(),
            start=now(),
        )

    def run(self) -> None:
        """Search. NoMeasurement if too few runs succeed to know the usual rate."""
        find = suspects.halves if self.report.way == "hosts" else suspects.pairs
        outcome = find(len(self._hosts), self._over)
        if outcome.usual is None:
            last = next(
                (one.error for one in reversed(self.report.runs) if one.error), "no run succeeded"
            )
            raise NoMeasurement(
                f"--suspect: too few runs succeeded to compare; the last error: {last}",
                "try busbw run on two hosts first",
            )
        names = self.report.hosts
        self.report.suspects = [
            Suspect([names[at] for at in one.hosts], one.share) for one in outcome.found
        ]
        self.report.doubts, self.report.spread = self._doubts(outcome), outcome.spread
        self.report.usual, self.report.complete, self.report.end = outcome.usual, True, now()
        self._save(self.report)

    def _doubts(self, outcome: suspects.Outcome) -> list[str]:
        """A sentence for each group that may be slow, and one where the runs differ too much to
        see a slow host.
        """
        said = []
        for one in outcome.left_open:
            names = " and ".join(self.report.hosts[at] for at in one.hosts)
            said.append(
                f"{names}: {100 * one.share:.0f} % of the usual rate in repeated runs, which differ"
                " too much to tell it from chance"
            )
        if outcome.noisy:
            differ = (
                "no hosts were measured twice"
                if outcome.spread is None
                else f"runs over the same hosts differ by {outcome.spread:.0%}"
            )
            said.append(
                f"{differ}: a host at {SLOW:.0%} of the usual rate would not be seen".replace(
                    "%", " %"
                )
            )
        return said

    def _over(self, group: Sequence[int]) -> float | None:
        """busbw of the collective over some of the hosts; None if the run failed."""
        chosen = [self._hosts[at] for at in sorted(group)]
        rate, error = None, ""
        try:
            result = run(
                self._spec,
                hosts=",".join(map(str, chosen)),
                engine=self._engine,
                ifname=self._ifname,
                program="busbw link",
            )
            cells = [
                cell
                for row in result.rows
                for cell in (row.out_of_place, row.in_place)
                if cell is not None
            ]
            rate, error = (
                max((cell.busbw for cell in cells), default=None),
                "; ".join(result.errors),
            )
        except UsageError:
            raise
        except BusbwError as failure:
            error = failure.message
        self.report.runs.append(Run([host.name for host in chosen], rate, error))
        talk(
            f"run {len(self.report.runs)}: {', '.join(host.name for host in chosen)}:"
            f" {error if rate is None else bits_text(rate)}"
        )
        self._save(self.report)
        return rate
