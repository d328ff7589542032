"""Conclusions about a run: a verdict and a message, with evidence and a fix."""

from enum import Enum

import msgspec


class Verdict(Enum):
    """Missing evidence is unknown, never pass. Skip means that the question does not apply."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"
    UNKNOWN = "unknown"


# Findings that `busbw show` adds while it reads a log. Those of a run are the rules of
# model/findings.py.
LOG_ROWS, LOG_TABLES, LOG_COLLECTIVE, LOG_AVERAGE = (
    "log.rows",
    "log.tables",
    "log.collective",
    "log.average",
)
LOG_RANKS, LOG_FIGURES, LOG_FAILED = "log.ranks", "log.figures", "log.failed"
LOG_FINDINGS = {
    LOG_ROWS: (Verdict.WARN, "`busbw show` skipped lines of a log that it could not parse"),
    LOG_TABLES: (Verdict.WARN, "a log contains several tables; only the first was read"),
    LOG_COLLECTIVE: (
        Verdict.PASS,
        "a log does not name its collective; the only one that its table fits was taken",
    ),
    LOG_AVERAGE: (
        Verdict.WARN,
        (
            "rows of a log are missing or were changed: their mean is not the stated `Avg bus"
            " bandwidth`"
        ),
    ),
    LOG_RANKS: (
        Verdict.WARN,
        "a log does not list the device of every rank, or lists processes that ran apart",
    ),
    LOG_FIGURES: (
        Verdict.WARN,
        "figures of a log contradict each other, or the collective that it names",
    ),
    LOG_FAILED: (Verdict.FAIL, "a log states that its run failed"),
}


class Finding(msgspec.Struct, frozen=True):
    """One conclusion.

    `evidence` states what was read or measured; `fix` is the remedy, empty if none is needed.
    """

    id: str
    verdict: Verdict
    message: str
    evidence: str = ""
    fix: str = ""
