"""Findings of machines as JUnit's XML, whose outcomes are those of the exit code."""

from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from busbw.check import junit
from busbw.check.types import (
    CheckReport,
    ClusterReport,
    Difference,
    Evidence,
    ReportedFinding,
    overall,
)
from busbw.core.finding import Verdict

COUNTS = {"failures": "failure", "errors": "error", "skipped": "skipped"}


def finding(verdict: Verdict, subject: str = "", *, optional: bool = False) -> ReportedFinding:
    return ReportedFinding(
        id="BW040",
        name="nic-speed",
        layer="NIC",
        verdict=verdict,
        subject=subject,
        message='100 Gbit/s <&" of 400',
        evidence=(Evidence("/sys/class/infiniband/mlx5_0/rate", "100\x1b[31m", "400"),),
        fix="reseat the cable",
        optional=optional,
    )


def checked(document: str) -> ElementTree.Element:
    """The document, as far as Jenkins' schema restricts it."""
    root = ElementTree.fromstring(document)
    assert root.tag == "testsuites"
    for suite in root:
        assert set(suite.attrib) == {"name", "tests", *COUNTS}
        assert suite.get("tests") == str(len(suite))
        for attribute, tag in COUNTS.items():
            assert suite.get(attribute) == str(len(suite.findall(f"testcase/{tag}")))
        for case in suite:
            assert case.tag == "testcase" and set(case.attrib) == {"classname", "name"}
            tags = [element.tag for element in case]
            assert [tag for tag in tags if tag not in COUNTS.values()] in ([], ["system-out"])
            assert len(tags) <= 2
    return root


def test_a_machine(golden: Callable[[str, str], None]) -> None:
    findings = [
        finding(Verdict.PASS, "mlx5_0"),
        finding(Verdict.FAIL, "mlx5_1"),
        finding(Verdict.UNKNOWN, "mlx5_2"),
        finding(Verdict.UNKNOWN, "mlx5_3", optional=True),
        finding(Verdict.WARN, "mlx5_4"),
        finding(Verdict.SKIP, "mlx5_5"),
    ]
    document = junit.machine(CheckReport(host="h1", findings=findings), Verdict.FAIL)
    checked(document)
    golden("junit/check.xml", document)


@pytest.mark.parametrize("fail_on", [Verdict.FAIL, Verdict.WARN])
@pytest.mark.parametrize("verdict", list(Verdict))
@pytest.mark.parametrize("optional", [True, False])
def test_a_suite_fails_where_the_exit_code_does(
    verdict: Verdict, fail_on: Verdict, optional: bool
) -> None:
    findings = [finding(verdict, optional=optional)]
    (suite,) = checked(junit.machine(CheckReport(host="h1", findings=findings), fail_on))
    judged = overall(findings, fail_on)
    assert (suite.get("failures") == "1") == (judged is Verdict.FAIL)
    assert (suite.get("errors") == "1") == (judged is Verdict.UNKNOWN)
    told = suite.findtext("testcase/system-out") or ""
    bad = verdict not in (Verdict.PASS, Verdict.SKIP)
    assert ("h1" in told and "100 Gbit/s" in told and "reseat" in told) == bad


def test_nodes_that_are_silent_or_differ() -> None:
    nodes = [CheckReport(host="h1", findings=[finding(Verdict.PASS)])]
    mtu = Difference(fact="MTU", usual="9000", usual_hosts=7, odd={"1500": ["h2"]})
    report = ClusterReport(differences=[mtu], nodes=nodes, silent={"h2": "no route\ufffe"})
    report.unreadable = {"h3": "empty"}
    suites = checked(junit.cluster(report, Verdict.FAIL))
    assert [
        (suite.get("name"), suite.get("failures"), suite.get("errors")) for suite in suites
    ] == [("h1", "0", "0"), ("h2", "1", "0"), ("h3", "0", "1"), ("differences", "0", "0")]
    assert [suite.findtext("testcase/system-out") for suite in suites] == [
        *(None, "no route?", "empty", "1500 on h2; 9000 on the other 7")
    ]
