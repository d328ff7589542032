"""What the kernel log of this boot says about devices, memory, processors, processes and disks: a check for each rule of core."""

from busbw.check.base import Check
from busbw.check.kernel_log.judge import check
from busbw.core.kernel_rules import RULES

CHECKS: tuple[Check, ...] = tuple(check(rule) for rule in RULES)
