"""The runs of `busbw link --suspect`: a collective over some of the hosts, as with `busbw run`."""

from collections.abc import Callable, Sequence

from busbw.cli.options.parameters import argv
from busbw.cli.streams import print_err
from busbw.core.collectives import collective as collective_row
from busbw.core.errors import BusbwError, NoMeasurement, UsageError
from busbw.core.host_ranges import listed
from busbw.core.sweep import Sampling, SweepSpec
from busbw.core.version import __version__
from busbw.launch.hosts import LaunchHost
from busbw.link import suspects
from busbw.link.driver import now
from busbw.link.suspects import SLOW_SHARE
from busbw.link.types import HostsRun, Suspect, SuspectReport, bits_text
from busbw.measure.api import run

SEARCHES = ("hosts", "pairs")  # the values of --suspect


class SuspectSearch:
    """A search among `hosts`, whose slots are the ranks on each host. `save` gets the report after
    every run.
    """

    def __init__(
        self,
        search: str,
        collective: str,
        size: int,
        hosts: Sequence[LaunchHost],
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
            way=search,
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
        outcome = find(len(self._hosts), self._measure)
        if outcome.usual is None:
            errors = [run.error for run in self.report.runs if run.error]
            last = errors[-1] if errors else "no run succeeded"
            raise NoMeasurement(
                f"--suspect: too few runs succeeded to compare; the last error: {last}",
                "try busbw run on two hosts first",
            )
        names = self.report.hosts
        for group in outcome.found:
            hosts = [names[index] for index in group.hosts]
            self.report.suspects.append(Suspect(hosts, group.share))
        self.report.doubts = self._doubts(outcome)
        self.report.spread, self.report.usual = outcome.spread, outcome.usual
        self.report.complete, self.report.end = True, now()
        self._save(self.report)

    def _doubts(self, outcome: suspects.SearchOutcome) -> list[str]:
        """A sentence for each group that may be slow, and one if the runs vary too much to tell."""
        doubts = []
        for group in outcome.left_open:
            names = " and ".join(self.report.hosts[index] for index in group.hosts)
            doubts.append(
                f"{names}: {100 * group.share:.0f} % of the usual rate in repeated runs, which"
                " differ too much to tell it from chance"
            )
        if outcome.noisy:
            reason = "no hosts were measured twice"
            if outcome.spread is not None:
                reason = f"runs over the same hosts differ by {100 * outcome.spread:.0f} %"
            doubts.append(
                f"{reason}: a host at {100 * SLOW_SHARE:.0f} % of the usual rate would not be seen"
            )
        return doubts

    def _measure(self, group: Sequence[int]) -> float | None:
        """The busbw of the collective over some of the hosts; None if the run failed."""
        chosen = [self._hosts[index] for index in sorted(group)]
        rate, error = None, ""
        try:
            result = run(
                self._spec,
                hosts=",".join(map(str, chosen)),
                engine=self._engine,
                ifname=self._ifname,
                program="busbw link",
            )
            cells = [cell for row in result.rows for cell in (row.out_of_place, row.in_place)]
            rate = max((cell.busbw for cell in cells if cell is not None), default=None)
            error = "; ".join(result.errors)
        except UsageError:
            raise
        except BusbwError as failure:
            error = failure.message
        names = [host.name for host in chosen]
        self.report.runs.append(HostsRun(names, rate, error))
        outcome = error if rate is None else bits_text(rate)
        print_err(f"run {len(self.report.runs)}: {listed(names)}: {outcome}")
        self._save(self.report)
        return rate
