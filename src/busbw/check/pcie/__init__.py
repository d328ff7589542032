"""PCI Express."""

from busbw.check.base import Check

CHECKS: tuple[Check, ...] = ()
