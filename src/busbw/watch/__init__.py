"""Counters over time."""
