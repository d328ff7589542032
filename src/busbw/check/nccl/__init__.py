"""Variables of NCCL."""

from busbw.check.base import Check
from busbw.check.nccl import gid_index

CHECKS: tuple[Check, ...] = (gid_index.CHECK,)
