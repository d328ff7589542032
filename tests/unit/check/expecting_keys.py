"""The findings of an expectations file that are not right."""

from datetime import date

from busbw.check.expect import file
from busbw.check.expect.file import Expect, judge
from busbw.check.registry import EXPECTATIONS
from busbw.core.finding import Verdict

ALL = frozenset(check.row.id for check in EXPECTATIONS)
BAD = {Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN}


def compared(toml, tree):
    return judge(
        tree.source(), [], expect=Expect(file.Text("node.toml", toml, date(2026, 11, 26)), ALL)
    ).findings


def bad(toml, tree):
    return [
        (finding.id, finding.subject, finding.verdict.value)
        for finding in compared(toml, tree)
        if finding.verdict in BAD
    ]
