"""Kernel and modules."""

from busbw.check.base import Check

CHECKS: tuple[Check, ...] = ()
