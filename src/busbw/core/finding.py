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


class Finding(msgspec.Struct, frozen=True):
    """One conclusion. `evidence` states what was read or measured; `fix` is the remedy, empty if none is needed."""

    id: str
    verdict: Verdict
    message: str
    evidence: str = ""
    fix: str = ""
