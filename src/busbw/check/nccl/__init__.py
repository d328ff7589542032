"""Variables of NCCL, and what they refer to."""
