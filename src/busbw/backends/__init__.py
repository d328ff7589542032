"""Backends of one collective beside each other: which is the fastest at which size."""
