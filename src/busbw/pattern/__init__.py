"""Patterns of communication of an application: readers of logs, traces and dumps, the merging of
their ranks, and replay.
"""
