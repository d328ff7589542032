"""The verdict on a machine, and its exit code."""

import pytest

from busbw.check.types import ReportedFinding, overall, worst
from busbw.core.errors import Exit
from busbw.core.finding import Verdict, exit_of

FAIL, UNKNOWN, WARN, PASS, SKIP = (
    Verdict.FAIL,
    Verdict.UNKNOWN,
    Verdict.WARN,
    Verdict.PASS,
    Verdict.SKIP,
)
NO_DATA = "no data"


def finding_with(of: Verdict | str) -> ReportedFinding:
    verdict = Verdict.UNKNOWN if of == NO_DATA else of
    assert isinstance(verdict, Verdict)
    return ReportedFinding(
        id="BW001",
        name="gpu-count",
        layer="GPU",
        verdict=verdict,
        subject="",
        message="",
        optional=of == NO_DATA,
    )


@pytest.mark.parametrize(
    ("findings", "fail_on", "verdict", "code"),
    [
        ([PASS, WARN, UNKNOWN, FAIL], FAIL, FAIL, Exit.BAD),
        ([PASS, WARN, UNKNOWN], FAIL, UNKNOWN, Exit.UNKNOWN),
        ([PASS, WARN, NO_DATA], FAIL, WARN, Exit.OK),
        ([PASS, NO_DATA, SKIP], FAIL, PASS, Exit.OK),
        ([WARN], FAIL, WARN, Exit.OK),
        ([NO_DATA, SKIP], FAIL, UNKNOWN, Exit.UNKNOWN),
        ([], FAIL, UNKNOWN, Exit.UNKNOWN),
        ([PASS, WARN, UNKNOWN], WARN, FAIL, Exit.BAD),
        ([PASS, UNKNOWN], WARN, UNKNOWN, Exit.UNKNOWN),
        ([PASS, NO_DATA], WARN, PASS, Exit.OK),
    ],
)
def test_the_worst_finding_that_counts_decides(
    findings: list[Verdict | str], fail_on: Verdict, verdict: Verdict, code: Exit
) -> None:
    for order in (findings, findings[::-1]):
        assert overall(map(finding_with, order), fail_on) is verdict
    assert exit_of([verdict]) is code


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [
        ([PASS, FAIL, UNKNOWN], FAIL),
        ([WARN, UNKNOWN, PASS], UNKNOWN),
        ([PASS, WARN], WARN),
        ([PASS], PASS),
        ([], UNKNOWN),
    ],
)
def test_the_worst_machine_decides(verdicts: list[Verdict], verdict: Verdict) -> None:
    assert worst(verdicts) is verdict
