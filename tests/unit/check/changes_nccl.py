"""Changes of a machine that variants of NCCL and launchers share."""

from tree import Change, environment


def combine(*changes: Change) -> Change:
    """Several changes."""
    return lambda tree: [change(tree) for change in changes]


def set_to(name: str, *values: str) -> dict[str, Change]:
    """A variable with each of the values."""
    return {f"{name}={value}": environment(**{name: value}) for value in values}
