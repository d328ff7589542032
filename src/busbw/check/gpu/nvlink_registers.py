"""The registers in a line of Xid 74, which tell harmless NVLink errors of Hopper from others.

Source: WORKFLOW_NVLINK_ERR of NVIDIA's Xid catalog. Of the seven registers, the first, third, fourth and fifth count on Hopper.
"""

import re

HOPPER = 90  # compute capability
HARMLESS, SECONDARY = "harmless", "secondary"
_REGISTERS = re.compile(r"on link \d+ ?\(((?:0x[0-9a-f]+(?:, )?){7})\)", re.IGNORECASE)
# By register: bits that can be ignored, or tell of corrected errors above a threshold; and bits that follow another error.
_HARMLESS_BITS: dict[int, tuple[int, ...]] = {0: (0, 23, 30), 4: (20, 23, 26, 29)}
_SECONDARY_BITS: dict[int, tuple[int, ...]] = {0: (1, 20), 3: (16, 17)}


def reading(text: str) -> str:
    """`harmless` if all bits that are set need no action, `secondary` if they follow another error; '' for other lines."""
    match = _REGISTERS.search(text)
    if match is None:
        return ""
    registers = [int(word, 16) for word in match[1].split(", ")]
    left = [value & ~_mask(_HARMLESS_BITS, place) for place, value in enumerate(registers)]
    if not any(registers):
        return ""
    if not any(left):
        return HARMLESS
    return "" if any(value & ~_mask(_SECONDARY_BITS, place) for place, value in enumerate(left)) else SECONDARY


def _mask(bits: dict[int, tuple[int, ...]], register: int) -> int:
    return sum(1 << bit for bit in bits.get(register, ()))
