"""Starts ranks, joins them, and ends them."""
