"""Horovod's API without Horovod: the same names and meanings over torch.distributed, pure Python, with busbw's exchanges underneath."""
