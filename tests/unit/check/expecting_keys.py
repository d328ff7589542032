"""The findings of an expectations file that are not right."""

from datetime import date

from busbw.check.expect import file
from busbw.check.expect.file import Expect, judge
from busbw.check.registry import EXPECTATIONS
from busbw.core.finding import Verdict

ALL = frozenset(one.row.id for one in EXPECTATIONS)
BAD = {Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN}


def compared(toml, tree):
    return judge(
        tree.source(), [], expect=Expect(file.Text("node.toml", toml, date(2026, 11, 26)), ALL)
    ).findings


def bad(toml, tree):
    return [
        (one.id, one.subject, one.verdict.value)
        for one in compared(toml, tree)
        if one.verdict in BAD
    ]
