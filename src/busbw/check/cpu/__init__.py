"""CPUs and memory."""
