"""Finds faster algorithms, protocols and channels for NCCL on the user's own ranks, and writes
the table for the tuner plugin.
"""
