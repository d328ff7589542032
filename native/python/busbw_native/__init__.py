"""Carries the NCCL plugins of busbw as a shared library: `busbw run --net busbw
--print-env` prints what makes NCCL use it.
"""
