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


# Findings that `busbw show` adds while it reads a log. Those of a run are the rules of model/findings.py.
LOG_ROWS, LOG_TABLES = "log.rows", "log.tables"
LOG_FINDINGS = {
    LOG_ROWS: (Verdict.WARN, "`busbw show` skipped lines of a log that it could not parse"),
    LOG_TABLES: (Verdict.WARN, "a log contains several tables; only the first was read"),
}


class Finding(msgspec.Struct, frozen=True):
    """One conclusion. `evidence` states what was read or measured; `fix` is the remedy, empty if none is needed."""

    id: str
    verdict: Verdict
    message: str
    evidence: str = ""
    fix: str = ""
