"""NVLink."""

from busbw.check.base import Check
from busbw.check.nvlink import errors, fabric, fabric_manager_version, imex, links, speed

CHECKS: tuple[Check, ...] = (
    links.CHECK,
    speed.CHECK,
    errors.CHECK,
    fabric.CHECK,
    fabric_manager_version.CHECK,
    imex.CHECK,
)
