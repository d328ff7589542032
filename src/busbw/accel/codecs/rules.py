"""Constants and formulas that plain torch and the kernels share, so that both give the same
results.
"""

import torch

# Top-k. The threshold aims at this share of the entries, so that usually none overflow.
FILL = 0.95
# Counts fall with a power of the threshold: 2 for heavy tails, 8 for Gaussian ones. This exponent
# converges for all.
CORRECTION = 1 / 8
# If the count is off by more than this factor, a new threshold is computed from a sample.
FAR = 2
# Odd multipliers that scatter (32-bit golden ratio, and another): for the start of a selection, and
# for sample positions.
TURN, STEP_TURN = 2_654_435_761, 40_503

# int8 and int4: elements per scale, and bytes of a scale.
BLOCK, SCALE_BYTES = 256, 4
# Smaller scales have too few significant bits to divide by.
LEAST_SCALE = torch.finfo(torch.float32).tiny


def most_steps(bits: int) -> int:
    """The largest `bits`-bit integer whose negative exists."""
    return int(2 ** (bits - 1)) - 1


def row_bytes(length: int, bits: int) -> int:
    """Bytes of a row of `length` elements (a multiple of BLOCK): scales, then integers."""
    return SCALE_BYTES * length // BLOCK + length * bits // 8
