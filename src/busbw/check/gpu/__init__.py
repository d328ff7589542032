"""GPUs and their driver."""
