"""Horovod's API in pure Python over torch.distributed, without Horovod."""
