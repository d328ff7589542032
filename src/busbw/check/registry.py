"""All checks, by layer."""

from busbw.check import cpu, gpu, kernel, launcher, limits, nccl, nic, nvlink, pcie, roce
from busbw.check.base import Check
from busbw.core.errors import UsageError

CHECKS: tuple[Check, ...] = (
    *gpu.CHECKS,
    *nvlink.CHECKS,
    *pcie.CHECKS,
    *nic.CHECKS,
    *roce.CHECKS,
    *kernel.CHECKS,
    *limits.CHECKS,
    *cpu.CHECKS,
    *nccl.CHECKS,
    *launcher.CHECKS,
)
BY_ID = {check.row.id: check for check in CHECKS}
BY_NAME = {check.row.name: check for check in CHECKS}


def find(name: str) -> Check:
    """The check with this id or name; UsageError if there is none."""
    check = BY_ID.get(name.upper()) or BY_NAME.get(name)
    if check is None:
        raise UsageError(f"no such check '{name}'", "busbw check --list names all")
    return check
