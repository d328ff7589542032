"""Runs collectives: over NCCL, PyTorch or MPI, or simulated."""
