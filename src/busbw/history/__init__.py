"""Finished runs that are kept, and how they change over time."""
