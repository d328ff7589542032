"""Carries the NCCL plugins of busbw as a shared library: `busbw env net` prints what makes NCCL
use it.
"""
