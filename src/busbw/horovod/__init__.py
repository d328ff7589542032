"""Horovod's API in pure Python over torch.distributed, without Horovod."""

__version__ = "0.28.1"  # the release of Horovod whose API this is: scripts compare it
