"""Keeps the states of AdamW in host memory: gradients come down during backward, updates run on
the CPU, weights go up before their use.
"""
