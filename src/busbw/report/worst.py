"""What is wrong in the files of a report, the worst first: the list that its page begins with."""

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from busbw.check.groups import FindingGroup, group
from busbw.check.types import CheckReport, grade, node_names
from busbw.core.finding import Verdict
from busbw.core.host_ranges import fold
from busbw.core.sizes import counted
from busbw.report.judged import JudgedFile
from busbw.ui.html.element import add, tag, with_code

ORDER = ("fail", "warn", "unknown")  # what is wrong, then what could not be judged
MOST = 8  # that are listed
TITLE = "What is wrong"


def worst(families: Sequence[Sequence[JudgedFile]], *, well: bool) -> Iterator[Element]:
    """A card for each of the worst faults of all files, with its hosts and a link to the section.

    Each family has files of one kind, whose findings are grouped. Without a fault it is one line,
    if findings passed and all else is `well`.
    """
    faults = [fault for family in families for fault in _faults(family)]
    faults.sort(key=lambda fault: ORDER.index(grade(fault[0].first)))
    if faults:
        cards = (_card(fault, files) for fault, files in faults[:MOST])
        yield tag("ul", *cards, class_="findings", aria_label=TITLE)
        if len(faults) > MOST:
            yield tag("p", f"{len(faults) - MOST} more are in the sections of their files.")
    elif well:
        yield from _nothing_wrong([judged.report for family in families for judged in family])


def _nothing_wrong(reports: Sequence[CheckReport]) -> Iterator[Element]:
    """A line, if anything was judged."""
    passed = sum(
        finding.verdict is Verdict.PASS for report in reports for finding in report.findings
    )
    if passed:
        yield tag("p", f"Nothing is wrong: {counted(passed, 'finding')} passed.")
    elif any(report.verdict is Verdict.PASS for report in reports):
        yield tag("p", "Nothing is wrong.")


def _faults(family: Sequence[JudgedFile]) -> list[tuple[FindingGroup, list[JudgedFile]]]:
    """The faults of files of one kind, each with the files that have it."""
    reports = [judged.report for judged in family]
    by_name = dict(zip(node_names(reports), family, strict=True))
    return [(fault, [by_name[node] for node in fault.nodes]) for fault in group(reports, ORDER)]


def _card(fault: FindingGroup, files: Sequence[JudgedFile]) -> Element:
    verdict = fault.first.verdict.value
    badge = tag("strong", verdict, class_=f"badge v-{verdict}")
    hosts = fold(judged.report.host for judged in files if judged.report.host)
    place = tag("p", "on " if hosts else None, tag("b", hosts) if hosts else None)
    by_section: dict[str, dict[str, None]] = {}
    for judged in files:
        by_section.setdefault(judged.section, {})[judged.file] = None
    for number, (section, names) in enumerate(by_section.items()):
        text = next(iter(names)) if len(names) == 1 else counted(len(names), "file")
        add(place, ", " if number or hosts else None, tag("a", text, href=f"#{section}"))
    head = tag("p", badge, " ", *with_code(fault.headline))
    return tag("li", head, place, class_=f"v-{verdict}")
