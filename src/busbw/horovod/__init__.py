"""Horovod's API over torch.distributed, in Python alone: `import busbw.horovod.torch as hvd`."""
