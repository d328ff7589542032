"""Links whose errors grew unlike those of the others, as findings of the checks of their errors."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from busbw.check.base import CheckOf, checked, warned
from busbw.check.machine import Machine
from busbw.check.rates import HOUR_S, interval_s
from busbw.check.trend.growth import NVLINK, PORT, growths_since, link_name
from busbw.check.trend.outliers import find_outliers
from busbw.check.trend.text import FIX, grew, seen
from busbw.check.trend.types import Growth, OutlierLink
from busbw.check.types import Evidence, Finding, ReportedFinding
from busbw.core.finding import Verdict

FLAP, SYMBOL_ERRORS, NVLINK_ERRORS = "BW076", "BW077", "BW032"
AER_FATAL, AER_CORRECTABLE = "BW051", "BW052"
CHECKS_OF_LINKS = (NVLINK_ERRORS, AER_FATAL, AER_CORRECTABLE, FLAP, SYMBOL_ERRORS)
_OF_COUNTER = {
    "link_downed": FLAP,
    "link_down_events_phy": FLAP,
    "AER fatal": AER_FATAL,
    "AER nonfatal": AER_FATAL,
}
_BAD = (Verdict.WARN, Verdict.FAIL)


def of_odd_links(
    machine: Machine, checks: Iterable[CheckOf[Machine]], findings: Sequence[ReportedFinding]
) -> list[ReportedFinding]:
    """A warning for each link that differs from the others since the earlier reading, by the one of
    `checks` that looks at its errors; none for a link that `findings` have named for them.
    """
    seconds = interval_s(machine)
    chosen = {check.row.id: check.row for check in checks if check.row.id in CHECKS_OF_LINKS}
    if machine.earlier is None or seconds is None or not chosen:
        return []
    alike: dict[tuple[str, str], list[Growth]] = defaultdict(list)
    for growth in growths_since(machine.earlier, machine, seconds / HOUR_S):
        alike[growth.kind, growth.counter].append(growth)
    found = []
    for odd in (link for links in alike.values() for link in find_outliers(links)):
        row = chosen.get(check_of(odd.growth))
        bad = [finding for finding in findings if finding.verdict in _BAD]
        if row and not any(names_link(finding, odd.growth) for finding in bad):
            found.append(checked(row, _warning(odd)))
    return found


def check_of(growth: Growth) -> str:
    """The id of the check of these errors."""
    of_kind = {NVLINK: NVLINK_ERRORS, PORT: SYMBOL_ERRORS}.get(growth.kind, AER_CORRECTABLE)
    return _OF_COUNTER.get(growth.counter, of_kind)


def names_link(finding: ReportedFinding, growth: Growth) -> bool:
    """Whether the finding is one of the check of these errors on this link."""
    if finding.id != check_of(growth):
        return False
    part, _, link = growth.link.partition(" link ")
    if growth.kind == NVLINK:
        return finding.subject in (part, growth.link) and f"link {link} " in f"{finding.message} "
    words = f"{finding.subject} {finding.message}".replace("(", " ").replace(")", " ").split()
    return link_name(growth) in words


def _warning(odd: OutlierLink) -> Finding:
    growth = odd.growth
    message = f"{growth.link} differs from the others: {grew(odd)}"
    evidence = Evidence(f"{growth.counter} of {growth.link}", f"{growth.by} more; {seen(odd)}")
    return warned(link_name(growth), message, evidence, fix=FIX, weight=growth.by)
