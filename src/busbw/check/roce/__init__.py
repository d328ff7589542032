"""Quality of service of RoCE."""

from busbw.check.base import Check

CHECKS: tuple[Check, ...] = ()
