"""Readers of patterns, one module per format."""
