"""All checks of a machine, by layer, and the rules of command lines."""

from busbw.check import command, cpu, expect, gpu, kernel, kernel_log, launcher, limits, nccl, nic, nvlink, pcie, roce
from busbw.check.base import Check
from busbw.check.expect.base import Expectation
from busbw.core.check_row import CheckRow
from busbw.core.errors import UsageError

CHECKS: tuple[Check, ...] = (
    *gpu.CHECKS,
    *nvlink.CHECKS,
    *pcie.CHECKS,
    *nic.CHECKS,
    *roce.CHECKS,
    *kernel.CHECKS,
    *kernel_log.CHECKS,
    *limits.CHECKS,
    *cpu.CHECKS,
    *nccl.CHECKS,
    *launcher.CHECKS,
)
EXPECTATIONS: tuple[Expectation, ...] = expect.CHECKS  # of a machine with an expectations file
OF_MACHINE: tuple[CheckRow, ...] = (*(check.row for check in CHECKS), *(one.row for one in EXPECTATIONS))
ROWS: tuple[CheckRow, ...] = (*OF_MACHINE, *(rule.row for rule in command.CHECKS))
BY_NAME = {key: row for row in ROWS for key in (row.id, row.name)}
BY_ROW = {check.row.id: check for check in CHECKS}


def find_row(name: str) -> CheckRow:
    """The row of the check or rule with this id or name; UsageError if there is none."""
    row = BY_NAME.get(name.upper()) or BY_NAME.get(name)
    if row is None:
        raise UsageError(f"no such check '{name}'", "busbw check --list names all")
    return row


def find(name: str) -> Check:
    """The check of a machine with this id or name; UsageError if there is none."""
    row = find_of_machine(name)
    if row.id not in BY_ROW:
        raise UsageError(f"{row.name} compares with a file of what a node should have", "busbw check --expect node.toml")
    return BY_ROW[row.id]


def find_of_machine(name: str) -> CheckRow:
    """The row of a check or expectation of a machine; UsageError for others."""
    row = find_row(name)
    if row not in OF_MACHINE:
        raise UsageError(f"{row.name} is a check of command lines", "busbw check command -- mpirun ...")
    return row
