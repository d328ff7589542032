"""Checks of a machine, over what the host room reads. A module has the checks of one subject."""
