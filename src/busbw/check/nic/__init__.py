"""Network ports."""

from busbw.check.base import Check
from busbw.check.nic import mtu

CHECKS: tuple[Check, ...] = (mtu.CHECK,)
