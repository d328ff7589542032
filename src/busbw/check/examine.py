"""Runs checks on a machine."""

import platform
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from busbw.check.base import Check, CheckOf, Subject, checked
from busbw.check.kernel.hangs import check_reads_answer
from busbw.check.machine import Machine
from busbw.check.overall import overall
from busbw.check.rates import TIME
from busbw.check.registry import CHECKS
from busbw.check.types import Checked, CheckReport, Found
from busbw.core.finding import Verdict
from busbw.core.masking import masked
from busbw.core.sizes import counted
from busbw.core.version import __version__
from busbw.host.source import Source

HOSTNAME = "/proc/sys/kernel/hostname"


def examine(
    source: Source, checks: Iterable[Check] = CHECKS, name: str = "", earlier: Machine | None = None
) -> CheckReport:
    """The findings of all checks on a machine.

    `name` is the snapshot's name, `earlier` an earlier reading of the machine.
    """
    machine = source if isinstance(source, Machine) else Machine(source, earlier)
    now = machine.call(TIME, lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    findings: list[Checked] = []
    lacking: dict[Found, list[Check]] = {}  # what is missing, and the checks that need it
    for check in checks:
        missing = _missing(check, machine)
        if missing:
            lacking.setdefault(missing, []).append(check)
        else:
            findings += run(check, machine)
    findings += _unasked(findings, machine)
    findings += [_lacking(missing, unmade) for missing, unmade in lacking.items()]
    return CheckReport(
        host=machine.text(HOSTNAME) or name or platform.node(),
        source=name,
        at=now.text or "",
        busbw=__version__,
        verdict=overall(findings),
        findings=findings,
    )


def _missing(check: Check, machine: Machine) -> Found | None:
    """What the check lacks; None if that cannot be parsed, of which `run` tells."""
    try:
        return check.missing(machine)
    except Exception:  # noqa: BLE001 - a broken machine may have anything in its files
        return None


def _lacking(missing: Found, unmade: list[Check]) -> Checked:
    """One finding for all checks that lack the same; that of the check itself if it is alone."""
    if len(unmade) == 1:
        return checked(unmade[0].row, missing)
    names = ", ".join(check.row.name for check in unmade)
    message = f"{missing.message}, which {counted(len(unmade), 'check')} need: {names}"
    return checked(check_reads_answer.row, msgspec.structs.replace(missing, message=message))


def _unasked(findings: Iterable[Checked], machine: Machine) -> list[Checked]:
    """Reads that did not answer, whichever checks were chosen: what hangs looks empty to them."""
    if any(finding.id == check_reads_answer.row.id for finding in findings):
        return []
    bad = (Verdict.FAIL, Verdict.UNKNOWN)
    return [finding for finding in run(check_reads_answer, machine) if finding.verdict in bad]


def run(check: CheckOf[Subject], subject: Subject) -> list[Checked]:
    """The findings of a check. An exception makes it unknown, and other checks still run."""
    try:
        return check.run(subject)
    except Exception as error:  # noqa: BLE001 - a broken machine may have anything in its files
        text = f"the check could not parse what it read: {type(error).__name__}: {error}"
        return [checked(check.row, Found(Verdict.UNKNOWN, "", masked(text)))]
