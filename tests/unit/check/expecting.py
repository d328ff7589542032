"""Compares a machine with an expectations file."""

from datetime import date

from equipped import equipped

from busbw.check.expect import file
from busbw.check.expect.file import Expect, judge
from busbw.check.expect.learn import learn
from busbw.check.expect.text import text
from busbw.check.machine import Machine
from busbw.check.registry import EXPECTATIONS, find
from busbw.core.finding import Verdict

TODAY = date(2026, 11, 26)
ALL = frozenset(check.row.id for check in EXPECTATIONS)
BAD = {Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN}


def learned(tree):
    return text(learn(Machine(tree.source())), "Learned from a test.")


def compared(toml, source, *, checks=(), ids=ALL):
    return judge(
        source,
        [find(name) for name in checks],
        expect=Expect(file.Text("node.toml", toml, TODAY), ids),
    )


def bad(report):
    return [finding for finding in report.findings if finding.verdict in BAD]


GOOD = learned(equipped())
