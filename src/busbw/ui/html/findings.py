"""Findings as cards: verdict, message, evidence and fix."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from busbw.core.finding import Finding
from busbw.ui.html.element import tag


def findings(found: Sequence[Finding]) -> Element:
    """All findings in their order."""
    if not found:
        return tag("p", "The file holds no findings.", class_="note")
    return tag("ul", *(_card(finding) for finding in found), class_="findings")


def _card(finding: Finding) -> Element:
    verdict = finding.verdict.value
    lines = (("evidence", finding.evidence), ("fix", finding.fix))
    said = [
        tag("p", tag("span", name, class_="name"), " ", text, class_=name)
        for name, text in lines
        if text
    ]
    head = tag(
        "p",
        tag("strong", verdict, class_=f"badge v-{verdict}"),
        " ",
        finding.message,
        " ",
        tag("code", finding.id),
    )
    return tag("li", head, *said, class_=f"v-{verdict}")
