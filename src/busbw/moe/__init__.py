"""Dispatch and combine of a mixture of experts: what they reach between ranks, with their phases.

`volumes` defines the bytes that each bandwidth counts.
"""
