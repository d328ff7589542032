"""All checks of a machine by layer, the rules of command lines, and the expectations of a file.

`examine` runs checks on a machine. `take_reading`, `load_reading` and `compare` are for an earlier
reading of the machine, from which checks see how its counters rise.
"""

import platform
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import msgspec

from busbw.check.base import REGISTERED, Check, CheckOf, Subject, checked
from busbw.check.command import nccl_tests, program_path, ranks, srun_torchrun
from busbw.check.command import open_mpi as open_mpi_lines
from busbw.check.command import variables as line_variables
from busbw.check.command.line import REGISTERED as REGISTERED_RULES
from busbw.check.command.line import Rule
from busbw.check.cpu import cpus, memory
from busbw.check.expect import base, gpus, host, network
from busbw.check.expect import storage as expect_storage
from busbw.check.expect.base import REGISTERED as REGISTERED_EXPECTATIONS
from busbw.check.expect.base import Expectation
from busbw.check.gpu import clocks, driver, ecc, peers, power, sharing, xid
from busbw.check.gpu import presence as gpu_presence
from busbw.check.kernel import hangs, rdma, sysctl, system
from busbw.check.kernel.hangs import check_reads_answer
from busbw.check.kernel_log import judge
from busbw.check.launcher import hosts, open_mpi, programs
from busbw.check.limits import cgroup, process, storage
from busbw.check.machine import Machine
from busbw.check.nccl import algorithms, connections, libraries, sockets, transports, variables
from busbw.check.nccl import infiniband as nccl_infiniband
from busbw.check.nccl import under_load as nccl_under_load
from busbw.check.nic import (
    bonds,
    cards,
    efa,
    gid,
    infiniband,
    interfaces,
    loss,
    mtu,
    optics,
    presence,
    state,
)
from busbw.check.nic import errors as nic_errors
from busbw.check.nvlink import fabric, switches
from busbw.check.nvlink import links as nvlinks
from busbw.check.pcie import errors, isolation, links, nvme, packets, topology, under_load
from busbw.check.rates import BOOT_ID_FILE, HOSTNAME, TIME_CALL, UPTIME_FILE, interval_s, time_now
from busbw.check.roce import consistency, pauses, qos, rdma_cm, traffic_class
from busbw.check.trend.odd_links import of_odd_links
from busbw.check.types import CheckReport, Finding, ReportedFinding, overall
from busbw.core.errors import UsageError, did_you_mean
from busbw.core.finding import CheckRow, Verdict
from busbw.core.kernel_rule import KMSG
from busbw.core.masking import masked
from busbw.core.sizes import counted
from busbw.core.version import __version__
from busbw.host.kernel_log_past import read_past
from busbw.host.snapshot import Recording, recorded
from busbw.host.source import Source

# The import of these modules registers the checks. Reports have the folders in this order.
MODULES: tuple[ModuleType, ...] = (
    gpu_presence, driver, xid, ecc, clocks, power, sharing, peers,
    nvlinks, fabric, switches,
    links, topology, isolation, packets, errors, under_load, nvme,
    presence, state, infiniband, cards, interfaces, bonds, mtu, gid, nic_errors, optics, loss, efa,
    qos, rdma_cm, traffic_class, pauses, consistency,
    rdma, sysctl, system, hangs,
    judge,
    process, storage, cgroup,
    cpus, memory,
    nccl_infiniband, connections, algorithms, transports, sockets, libraries, variables,
    nccl_under_load,
    open_mpi, hosts, programs,
    ranks, open_mpi_lines, line_variables, nccl_tests, srun_torchrun, program_path,
    gpus, host, network, expect_storage, base,
)  # fmt: skip
BOOT_FILES = (HOSTNAME, BOOT_ID_FILE, UPTIME_FILE)


def _folder(module: str) -> str:
    return module.rpartition(".")[0]


_FOLDERS = list(dict.fromkeys(_folder(module.__name__) for module in MODULES))


def _id(check: Rule | Expectation) -> str:
    return check.row.id


def _place(check: Check) -> tuple[int, str, bool, str]:
    """The key that sorts checks by folder, then by id; see `CheckOf.after`."""
    folder = _FOLDERS.index(_folder(check.judge.__module__))
    return folder, check.after or check.row.id, bool(check.after), check.row.id


CHECKS: tuple[Check, ...] = tuple(sorted(REGISTERED, key=_place))
RULES: tuple[Rule, ...] = tuple(sorted(REGISTERED_RULES, key=_id))
EXPECTATIONS: tuple[Expectation, ...] = tuple(sorted(REGISTERED_EXPECTATIONS, key=_id))
OF_MACHINE: tuple[CheckRow, ...] = (
    *(check.row for check in CHECKS),
    *(expectation.row for expectation in EXPECTATIONS),
)
ROWS: tuple[CheckRow, ...] = (*OF_MACHINE, *(rule.row for rule in RULES))
BY_NAME = {key: row for row in ROWS for key in (row.id, row.name)}
BY_ROW = {check.row.id: check for check in CHECKS}


def find_row(name: str) -> CheckRow:
    """The row of the check or rule with this id or name; UsageError if there is none."""
    row = BY_NAME.get(name.upper()) or BY_NAME.get(name)
    if row is None:
        hint = did_you_mean(name, BY_NAME, "busbw check --list names all")
        raise UsageError(f"no such check '{name}'", hint)
    return row


def find(name: str) -> Check:
    """The check of a machine with this id or name; UsageError if there is none."""
    row = find_of_machine(name)
    if row.id not in BY_ROW:
        raise UsageError(
            f"{row.name} compares with a file of what a node should have",
            "busbw check --expect node.toml",
        )
    return BY_ROW[row.id]


def find_of_machine(name: str) -> CheckRow:
    """The row of a check or expectation of a machine; UsageError for others."""
    row = find_row(name)
    if row not in OF_MACHINE:
        raise UsageError(
            f"{row.name} is a check of command lines", "busbw check command -- mpirun ..."
        )
    return row


def examine(
    source: Source, checks: Iterable[Check] = CHECKS, name: str = "", earlier: Machine | None = None
) -> CheckReport:
    """The findings of all checks on a machine, or of those of the kernel log if there is nothing
    else.

    `name` is the snapshot's name, `earlier` an earlier reading of the machine.
    """
    machine = source if isinstance(source, Machine) else Machine(source, earlier)
    read = ""
    if machine.is_log:
        log = read_past(machine)
        over = f" over {judge.reaches(log)}" if log.now_s > log.begins_s else ""
        read = f"{counted(log.file_lines, 'line')} of the kernel{over}"
        of_log = [check for check in checks if check.row.reads[:1] == (KMSG,)]
        checks = of_log or checks
    now = machine.call(TIME_CALL, time_now)
    findings: list[ReportedFinding] = []
    lacking: dict[Finding, list[Check]] = {}  # what is missing, and the checks that need it
    for check in checks:
        missing = _missing(check, machine)
        if missing:
            lacking.setdefault(missing, []).append(check)
        else:
            findings += run(check, machine)
    findings += of_odd_links(machine, checks, findings)
    findings += _unasked(findings, machine)
    findings += [_lacking(missing, unmade) for missing, unmade in lacking.items()]
    return CheckReport(
        host=machine.text(HOSTNAME) or name or platform.node(),
        source=name,
        read=read,
        at=now.text or "",
        no_earlier=machine.no_earlier,
        busbw=__version__,
        verdict=overall(findings),
        findings=findings,
    )


def _missing(check: Check, machine: Machine) -> Finding | None:
    """The finding if the check lacks something.

    None if what it reads cannot be parsed, which `run` reports.
    """
    try:
        return check.missing(machine)
    except Exception:  # noqa: BLE001 - a broken machine may have anything in its files
        return None


def _lacking(missing: Finding, unmade: list[Check]) -> ReportedFinding:
    """One finding for all checks that lack the same; for a single check its own finding."""
    if len(unmade) == 1:
        return checked(unmade[0].row, missing)
    names = ", ".join(check.row.name for check in unmade)
    message = f"{missing.message}, which {counted(len(unmade), 'check')} need: {names}"
    return checked(check_reads_answer.row, msgspec.structs.replace(missing, message=message))


def _unasked(findings: Iterable[ReportedFinding], machine: Machine) -> list[ReportedFinding]:
    """The findings on reads that did not answer, if the check of these was not chosen.

    To other checks, what hangs looks empty.
    """
    if any(finding.id == check_reads_answer.row.id for finding in findings):
        return []
    bad = (Verdict.FAIL, Verdict.UNKNOWN)
    return [finding for finding in run(check_reads_answer, machine) if finding.verdict in bad]


def run(check: CheckOf[Subject], subject: Subject) -> list[ReportedFinding]:
    """The findings of a check. An exception makes it unknown, and other checks still run."""
    try:
        return check.run(subject)
    except Exception as error:  # noqa: BLE001 - a broken machine may have anything in its files
        text = f"the check could not parse what it read: {type(error).__name__}: {error}"
        return [checked(check.row, Finding(Verdict.UNKNOWN, "", masked(text)))]


def take_reading(source: Source, checks: Iterable[Check]) -> str:
    """The machine as these checks read it now, as an archive."""
    recording = Recording(source)
    read_boot(recording)
    examine(recording, checks)
    return recording.archive()


def read_boot(source: Source) -> None:
    """Read what tells how long ago the reading was, with which `compare` begins."""
    for path in BOOT_FILES:
        source.read(path)


def load_reading(file: str) -> Machine:
    """The machine of a snapshot, read from its file."""
    return Machine(recorded(Path(file)))


class BootedSince(UsageError):
    """An earlier reading of the same machine, before its last boot."""


def compare(file: str, earlier: Machine, now: Machine) -> None:
    """UsageError unless `file` holds an earlier reading of the same machine since its last boot."""
    host, this_host = earlier.text(HOSTNAME) or "", now.text(HOSTNAME) or ""
    if host != this_host:
        raise UsageError(
            f"--since {file}: it is of {host or 'an unnamed host'}, not of {this_host}",
            "busbw check --save FILE, on this host",
        )
    if (earlier.text(BOOT_ID_FILE) or "") != (now.text(BOOT_ID_FILE) or ""):
        raise BootedSince(
            f"--since {file}: {host} was booted since, which set its counters to 0",
            "busbw check --save FILE, and again later",
        )
    seconds = interval_s(Machine(now, earlier))
    if seconds is None:
        raise UsageError(
            f"--since {file}: it is not earlier than this reading",
            "give the older snapshot to --since",
        )
