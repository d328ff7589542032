"""Findings as JUnit's XML, which the CI of GitLab, Jenkins and GitHub's reporters show.

Elements and attributes are those of Jenkins' schema for JUnit: testsuites, testsuite, testcase, in
it failure, error or skipped if it did not pass, and system-out.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from busbw.core.unseen import escape_invisible, escape_line

FAILURE, ERROR, SKIPPED = "failure", "error", "skipped"
_NO_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")


class Case(NamedTuple):
    """A test case. `outcome` is FAILURE, ERROR or SKIPPED with its `message`, '' for one that
    passed; `detail` is what else its reader needs. `output` is shown of any case.
    """

    group: str
    name: str
    outcome: str = ""
    message: str = ""
    detail: str = ""
    output: str = ""


def junit(suites: Mapping[str, Sequence[Case]]) -> str:
    root = ElementTree.Element("testsuites", name="busbw")
    for name, cases in suites.items():
        counts = {
            counted: str(sum(case.outcome == outcome for case in cases))
            for counted, outcome in (("failures", FAILURE), ("errors", ERROR), ("skipped", SKIPPED))
        }
        suite = ElementTree.SubElement(
            root, "testsuite", {"name": _line(name), "tests": str(len(cases)), **counts}
        )
        for case in cases:
            names = {"classname": _line(case.group), "name": _line(case.name)}
            element = ElementTree.SubElement(suite, "testcase", names)
            if case.outcome:
                message = {"message": _line(case.message)}
                problem = ElementTree.SubElement(element, case.outcome, message)
                problem.text = _text(case.detail) or None
            if case.output:
                ElementTree.SubElement(element, "system-out").text = _text(case.output)
    ElementTree.indent(root)
    return ElementTree.tostring(root, "unicode", xml_declaration=False) + "\n"


def _line(text: str) -> str:
    return _NO_XML.sub("?", escape_line(text))


def _text(text: str) -> str:
    return _NO_XML.sub("?", escape_invisible(text))
