"""The report of `busbw check trend` on all hosts."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from busbw.check.groups import faults
from busbw.check.machine import Machine
from busbw.check.registry import BY_ROW, examine
from busbw.check.trend.growth import SnapshotCounts, growths, hours_between, link_name, read_counts
from busbw.check.trend.odd_links import CHECKS_OF_LINKS, names_link
from busbw.check.trend.outliers import find_outliers
from busbw.check.trend.types import Growth, OutlierLink, TrendReport
from busbw.check.types import CheckReport
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict
from busbw.host.snapshot import archives_in, recorded


def trend(names: Sequence[str]) -> TrendReport:
    """The report on snapshots, and on those in folders. UsageError if no host has two of different
    times.
    """
    files = [file for name in names for file in archives_in(name) or [name]]
    by_host: dict[str, list[SnapshotCounts]] = defaultdict(list)
    for file in files:
        snapshot = read_counts(file)
        by_host[snapshot.host].append(snapshot)
    reasons: dict[str, str] = {}
    compared: dict[str, list[SnapshotCounts]] = {}
    for host, snapshots in by_host.items():
        if len({snapshot.at for snapshot in snapshots}) < 2:
            reasons[host] = "only one snapshot"
        else:
            compared[host] = sorted(snapshots, key=lambda snapshot: snapshot.at)
    if not compared:
        raise UsageError(
            f"no host has two snapshots of different times among {len(files)} files",
            "busbw check --save FILE, again later",
        )
    all_growths: list[Growth] = []
    for host, snapshots in sorted(compared.items()):
        all_growths += growths(host, snapshots)
    without = compared.keys() - {growth.host for growth in all_growths}
    reasons |= dict.fromkeys(without, "no error counter of a link is in all its snapshots")
    kinds: dict[tuple[str, str], list[Growth]] = defaultdict(list)
    for growth in all_growths:
        kinds[growth.kind, growth.counter].append(growth)
    odd = [link for alike in kinds.values() for link in find_outliers(alike)]
    links = {(growth.kind, growth.host, link_name(growth)) for growth in all_growths}
    return TrendReport(
        hosts=sorted(compared),
        hours=max((hours_between(snapshots) for snapshots in compared.values()), default=0.0),
        links=dict(Counter(kind for kind, _, _ in links)),
        odd=sorted(odd, key=lambda link: link.chance),
        grown=sorted(
            (growth for growth in all_growths if growth.by), key=lambda growth: -growth.by
        ),
        reasons=dict(sorted(reasons.items())),
        faults=faults([_checked(snapshots, odd) for _, snapshots in sorted(compared.items())]),
    )


def _checked(snapshots: Sequence[SnapshotCounts], odd: Iterable[OutlierLink]) -> CheckReport:
    """What the checks of links find on a host since the first snapshot of its last boot, without
    the warnings of links that differ: these are named already.
    """
    last = snapshots[-1]
    first = next(snapshot for snapshot in snapshots if snapshot.boot == last.boot)
    earlier = Machine(recorded(Path(first.file))) if first is not last else None
    checks = [BY_ROW[row_id] for row_id in CHECKS_OF_LINKS]
    report = examine(recorded(Path(last.file)), checks, last.file, earlier)
    own = [link.growth for link in odd if link.growth.host == last.host]
    report.findings = [
        finding
        for finding in report.findings
        if not finding.optional
        and (
            finding.verdict is not Verdict.WARN
            or not any(names_link(finding, growth) for growth in own)
        )
    ]
    return report
