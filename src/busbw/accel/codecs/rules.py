"""What plain torch and kernels agree on, so that either can be computed by the other's rules."""

import torch

# Top-k. The threshold aims at this share of the room, so that as a rule nothing exceeds it.
FILL = 0.95
# Counts fall with some power of the threshold: 2 in heavy tails, 8 in Gaussian ones. This exponent converges for all of them.
CORRECTION = 1 / 8
# A threshold whose count is off by more than this factor is found anew, among a sample.
FAR = 2
# Odd numbers that scatter (golden ratio of 32 bits, and another): where what exceeds the room begins, and what a sample takes.
TURN, STEP_TURN = 2_654_435_761, 40_503

# int8 and int4. Elements that share a scale, and the scale's bytes.
BLOCK, SCALE_BYTES = 256, 4
# Scales below it have too few bits of their own to divide by.
LEAST_SCALE = torch.finfo(torch.float32).tiny


def most_steps(bits: int) -> int:
    """The largest integer of so many bits that has a negative."""
    return int(2 ** (bits - 1)) - 1


def row_bytes(length: int, bits: int) -> int:
    """Of so many elements, a multiple of BLOCK: scales, then integers."""
    return SCALE_BYTES * length // BLOCK + length * bits // 8
