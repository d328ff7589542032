"""The verdict on a whole machine, from the findings of its checks, and its exit code."""

from collections.abc import Iterable

from busbw.check.types import Checked
from busbw.core.exits import Exit
from busbw.core.finding import Verdict

SEVERITY = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN, Verdict.PASS, Verdict.SKIP)
NO_DATA = "no data"
GRADES = ("fail", "unknown", "warn", NO_DATA, "pass", "skip")  # of findings, the worst first
AS_ROOT = "sudo busbw check"  # the fix of a finding that only root can make


def grade(one: Checked) -> str:
    """The word for its verdict; an unknown that does not count is `no data`."""
    return NO_DATA if one.optional else one.verdict.value


def overall(findings: Iterable[Checked], fail_on: Verdict = Verdict.FAIL) -> Verdict:
    """Fail, unknown, warn or pass, the first that a finding has.

    With `fail_on` WARN a warning makes it fail.

    A value that is not offered here does not count. If nothing else was judged, the verdict is
    unknown.
    """
    seen = {one.verdict for one in findings if not one.optional}
    if Verdict.FAIL in seen or fail_on in seen:
        return Verdict.FAIL
    return next(
        (verdict for verdict in (Verdict.UNKNOWN, Verdict.WARN, Verdict.PASS) if verdict in seen),
        Verdict.UNKNOWN,
    )


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on several machines; unknown if there is none."""
    return min(verdicts, key=SEVERITY.index, default=Verdict.UNKNOWN)


def exit_code(verdict: Verdict) -> Exit:
    """1 for fail, 3 for unknown, else 0."""
    return {Verdict.FAIL: Exit.BAD, Verdict.UNKNOWN: Exit.UNKNOWN}.get(verdict, Exit.OK)
