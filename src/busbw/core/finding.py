"""What busbw concludes: a verdict about a subject, in plain words, with the evidence and what to do."""

from enum import Enum

import msgspec


class Verdict(Enum):
    """Absence of evidence is unknown, never pass; skip means that the question does not apply here."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"
    UNKNOWN = "unknown"


class Finding(msgspec.Struct, frozen=True):
    """One conclusion. `evidence` names what was read or measured; `fix` is what to do, empty where nothing need be done."""

    id: str
    verdict: Verdict
    message: str
    evidence: str = ""
    fix: str = ""
