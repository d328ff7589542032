"""NCCL's own cost model: which algorithm and protocol it chooses, and the time that it expects."""
