"""GPUs and their driver."""

from busbw.check.base import Check

CHECKS: tuple[Check, ...] = ()
