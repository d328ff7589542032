"""Runs checks on a machine."""

import platform
from collections.abc import Iterable
from datetime import UTC, datetime

from busbw.check.base import Check, CheckOf, Seen
from busbw.check.kernel import reads_answer
from busbw.check.machine import Machine
from busbw.check.overall import overall
from busbw.check.rates import TIME
from busbw.check.registry import CHECKS
from busbw.check.types import Checked, CheckReport
from busbw.core.finding import Verdict
from busbw.core.masking import masked
from busbw.core.version import __version__
from busbw.host.source import Source

HOSTNAME = "/proc/sys/kernel/hostname"


def examine(source: Source, checks: Iterable[Check] = CHECKS, name: str = "", earlier: Machine | None = None) -> CheckReport:
    """The findings of all checks on a machine; `name` is the snapshot's name, `earlier` an earlier reading of the machine."""
    machine = source if isinstance(source, Machine) else Machine(source, earlier)
    at = machine.call(TIME, lambda: datetime.now(UTC).isoformat(timespec="seconds")).text or ""
    findings = [found for check in checks for found in run(check, machine)]
    findings += _unasked(findings, machine)
    host = machine.text(HOSTNAME) or name or platform.node()
    return CheckReport(host=host, source=name, at=at, busbw=__version__, verdict=overall(findings), findings=findings)


def _unasked(findings: Iterable[Checked], machine: Machine) -> list[Checked]:
    """Reads that did not answer, whichever checks were chosen: a directory that hangs looks empty to them."""
    if any(one.id == reads_answer.ROW.id for one in findings):
        return []
    bad = (Verdict.FAIL, Verdict.UNKNOWN)
    return [one for one in run(reads_answer.CHECK, machine) if one.verdict in bad]


def run(check: CheckOf[Seen], seen: Seen) -> list[Checked]:
    """The findings of a check. An exception makes it unknown, and other checks still run."""
    try:
        return check.run(seen)
    except Exception as error:  # noqa: BLE001 - a broken machine may have anything in its files
        row, text = check.row, masked(f"the check could not parse what it read: {type(error).__name__}: {error}")
        return [Checked(id=row.id, name=row.name, layer=row.layer.value, verdict=Verdict.UNKNOWN, subject="", message=text)]
