"""busbw: how fast the links between GPUs are, how fast they should be, and why they are not."""

__version__ = "0.1.0"
