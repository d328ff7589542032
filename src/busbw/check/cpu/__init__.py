"""CPUs and memory."""

from busbw.check.base import Check

CHECKS: tuple[Check, ...] = ()
