"""Checks of a machine, over what the package host reads. A module has the checks of one subject."""
