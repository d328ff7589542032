"""Limits of processes."""
