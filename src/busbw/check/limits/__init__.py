"""Limits of processes."""

from busbw.check.base import Check
from busbw.check.limits import memlock

CHECKS: tuple[Check, ...] = (memlock.CHECK,)
