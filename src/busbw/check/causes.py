"""Findings of one node that have one cause, so that the report shows it once, with the others
under it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from busbw.check.types import GRADES, ReportedFinding, grade
from busbw.core.finding import Layer, Verdict

# On one part of a node, a fault that the check on the left finds is due to a fault that a check on
# the right finds, or is the same fault.
CAUSES: dict[str, tuple[str, ...]] = {
    "BW005": ("BW001",),  # an Xid of a GPU that does not answer
    "BW009": ("BW008",),  # the remapping of rows after uncorrected errors
    "BW022": ("BW011",),  # reduced clocks, with and without load
    "BW023": ("BW001",),
    "BW034": ("BW033",),  # the fabric manager, without which the fabric does not start
    "BW042": ("BW040", "BW041"),  # lanes and generation of PCIe decide its rate
    "BW043": ("BW060", "BW086"),  # the RDMA device near a GPU, which is missing
    "BW044": ("BW060", "BW086"),
    "BW053": ("BW040", "BW041", "BW054"),
    "BW054": ("BW040", "BW041"),
    "BW061": ("BW062", "BW063"),  # a port without link or subnet manager is not active
    "BW063": ("BW062",),
    "BW069": ("BW061", "BW062"),
    "BW071": ("BW070",),  # the MTU, by itself and compared with the other ports
    "BW078": ("BW077",),
    "BW086": ("BW060",),
    "BW097": ("BW070", "BW090", "BW091", "BW092", "BW093", "BW094", "BW095"),
    "BW203": ("BW202",),  # /etc/hosts decides what the host's name resolves to
    "BW240": ("BW001", "BW005"),
    "BW241": ("BW001", "BW005"),
    "BW242": ("BW033",),
    "BW243": ("BW060", "BW061"),
    "BW244": ("BW060", "BW061"),
    "BW249": ("BW051",),  # error counts, and the same errors in the kernel log
    "BW250": ("BW154",),
    "BW260": ("BW005", "BW008", "BW009"),
    "BW290": ("BW001", "BW023"),  # what a file expects, and what the machine shows by itself
    "BW292": ("BW030", "BW031"),
    "BW293": ("BW060", "BW061", "BW066", "BW086"),
    "BW295": ("BW148",),
    "BW297": ("BW040", "BW041"),
    "BW298": ("BW264",),
}
OF_ANY_PART = ("BW043", "BW044")  # nothing says of which GPU a missing card was
LOST_GPU = "BW001"
OF_GPUS = (Layer.GPU.value, Layer.NVLINK.value)
BAD = ("fail", "unknown", "warn")


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding, and those that have the same cause."""

    finding: ReportedFinding
    details: tuple[ReportedFinding, ...] = ()


def problems(findings: Iterable[ReportedFinding]) -> list[Problem]:
    """All findings of a node in their order; of those with one cause, the gravest with the others
    under it.

    A failure so stands above the warning that is its cause. Of equally grave ones the cause stands
    above. A detail of a detail stands under the first.
    """
    kept = list(findings)
    bad = [finding for finding in kept if grade(finding) in BAD]
    under = _causes(sorted(bad, key=_gravest_first))
    details: dict[int, list[ReportedFinding]] = {}
    for finding in bad:
        if id(finding) in under:
            details.setdefault(id(under[id(finding)]), []).append(finding)
    return [
        Problem(finding, tuple(details.get(id(finding), ())))
        for finding in kept
        if id(finding) not in under
    ]


def is_cause(detail: ReportedFinding, finding: ReportedFinding) -> bool:
    """Whether the detail is the cause of the finding above it, which is graver."""
    return detail.id in CAUSES.get(finding.id, ())


def _gravest_first(finding: ReportedFinding) -> tuple[int, bool, bool]:
    return GRADES.index(grade(finding)), finding.id in CAUSES, finding.id in OF_ANY_PART


def _causes(bad: Sequence[ReportedFinding]) -> dict[int, ReportedFinding]:
    """For each detail, by its identity, the finding under which it stands."""
    under: dict[int, ReportedFinding] = {}
    for at, finding in enumerate(bad):
        for graver in bad[:at]:
            if _same_cause(finding, graver):
                under[id(finding)] = under.get(id(graver), graver)
                break
    return under


def _same_cause(finding: ReportedFinding, graver: ReportedFinding) -> bool:
    related = (
        graver.id in CAUSES.get(finding.id, ())
        or finding.id in CAUSES.get(graver.id, ())
        or not_judged(finding, graver)
    )
    of_any_part = finding.id in OF_ANY_PART or graver.id in OF_ANY_PART
    return related and (of_any_part or _same_part(finding, graver))


def not_judged(finding: ReportedFinding, graver: ReportedFinding) -> bool:
    """Whether a GPU could not be judged that does not answer."""
    lost = graver.id == LOST_GPU and graver.verdict is Verdict.FAIL
    return lost and finding.verdict is Verdict.UNKNOWN and finding.layer in OF_GPUS


def _same_part(finding: ReportedFinding, other: ReportedFinding) -> bool:
    """Whether both are on one part: the same, the whole node, or one that the other names."""
    return not (finding.subject and other.subject) or names(finding, other) or names(other, finding)


def names(finding: ReportedFinding, part: ReportedFinding) -> bool:
    """Whether the finding names the part of the other."""
    text = f"{finding.subject}: {finding.message}"
    word = rf"(?<![\w.]){re.escape(part.subject)}(?!\w)"
    return bool(part.subject) and re.search(word, text) is not None
