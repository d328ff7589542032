"""Keeps the states of AdamW in host memory.

Gradients are copied down to the host during backward, updates run on the CPU, and weights are
copied up to the GPU before they are used.
"""
