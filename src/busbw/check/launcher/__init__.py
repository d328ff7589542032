"""What starts ranks."""

from busbw.check.base import Check

CHECKS: tuple[Check, ...] = ()
