"""Findings, the conclusions about a run, and the row of a check with the texts of its page."""

from collections.abc import Iterable
from enum import Enum

import msgspec

from busbw.core.errors import Exit

# Findings that `busbw show` adds while it reads a log. Those of a run are the rules of
# model/findings.py.
LOG_ROWS, LOG_TABLES, LOG_COLLECTIVE = "log.rows", "log.tables", "log.collective"
LOG_AVERAGE, LOG_RANKS = "log.average", "log.ranks"
LOG_FIGURES, LOG_FAILED = "log.figures", "log.failed"


class Verdict(Enum):
    """Missing evidence is unknown, never pass. Skip means that the question does not apply."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"
    UNKNOWN = "unknown"


def exit_of(verdicts: Iterable[Verdict], fail_on: Verdict = Verdict.FAIL) -> Exit:
    """The exit code of a command that gave these verdicts, the same for all commands: 1 for FAIL,
    and for WARN if that is `fail_on`; else 3 for UNKNOWN; else 0.
    """
    given = set(verdicts)
    if given & {Verdict.FAIL, fail_on}:
        return Exit.BAD
    return Exit.UNKNOWN if Verdict.UNKNOWN in given else Exit.OK


LOG_FINDINGS = {
    LOG_ROWS: (Verdict.WARN, "`busbw show` skipped lines of a log that it could not parse"),
    LOG_TABLES: (
        Verdict.WARN,
        "a log contains several tables, of which the first was read, or a run without a row",
    ),
    LOG_COLLECTIVE: (
        Verdict.PASS,
        "a log does not name its collective; the only one that its table fits was taken",
    ),
    LOG_AVERAGE: (
        Verdict.WARN,
        "rows of a log are missing or were changed: their mean is not the stated"
        " `Avg bus bandwidth`",
    ),
    LOG_RANKS: (
        Verdict.WARN,
        "a log does not list the device of every rank, or lists processes that ran apart",
    ),
    LOG_FIGURES: (
        Verdict.FAIL,
        "figures of a log contradict each other, or the collective that it names",
    ),
    LOG_FAILED: (Verdict.FAIL, "a log states that its run failed"),
}


class RunFinding(msgspec.Struct, frozen=True):
    """One conclusion.

    `evidence` states what was read or measured; `fix` is the remedy, empty if none is needed.
    """

    id: str
    verdict: Verdict
    message: str
    evidence: str = ""
    fix: str = ""


class Layer(Enum):
    """The part of a machine that a check belongs to."""

    GPU = "GPU"
    NVLINK = "NVLink"
    PCIE = "PCIe"
    NIC = "NIC"
    ROCE = "RoCE"
    KERNEL = "kernel"
    LIMITS = "limits"
    CPU = "CPU and memory"
    NCCL = "NCCL"
    LAUNCHER = "launcher"
    EXPECTED = "expected"  # by a file of what a node should have


class CheckRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a check is, for its page."""

    id: str  # BW012; never reused
    name: str  # nic-mtu
    layer: Layer
    title: str  # what is looked at: "MTU of RoCE interfaces"
    right: str  # what passes
    why: str  # what goes wrong otherwise
    fix: str  # a command or change, with the names of one machine in braces, like {netdev}
    stays: str  # whether the fix survives a reboot, and if not, what would make it stay
    reads: tuple[str, ...]  # files, commands and library calls
    sources: tuple[str, ...] = ()  # documents that state the rule
