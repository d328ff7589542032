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

# int8. Elements that share a scale, the scale's bytes, and the largest byte.
BLOCK, SCALE_BYTES, STEPS = 256, 4, 127
# Scales below it have too few bits of their own to divide by.
LEAST_SCALE = torch.finfo(torch.float32).tiny
