"""Checks of a machine, one file each, over what the host room reads."""
