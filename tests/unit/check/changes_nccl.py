"""Changes of a machine that variants of NCCL and launchers share."""

from tree import Change, environment


def set_to(name: str, *values: str) -> dict[str, Change]:
    """A variable with each of the values."""
    return {f"{name}={value}": environment(**{name: value}) for value in values}
