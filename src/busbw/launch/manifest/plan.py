"""What every manifest contains: hosts, ranks, GPUs, and the command."""

from collections.abc import Sequence
from dataclasses import dataclass

from busbw.core.errors import UsageError

RUN = ("busbw", "run")
DEFAULT = (*RUN, "all_reduce")
# Options that place ranks: the manifest does that.
_PLACEMENT = (
    "--hosts",
    "--hostfile",
    "--slurm",
    "--nodes",
    "--ntasks-per-node",
    "--gpus-per-node",
    "-n",
    "--ranks",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """`hosts` hosts, each with `ranks_per_host` ranks and `gpus_per_host` GPUs (0: CPUs), that
    run `command`.
    """

    name: str
    hosts: int
    ranks_per_host: int
    gpus_per_host: int
    command: tuple[str, ...]

    @property
    def ranks(self) -> int:
        """Total number of ranks."""
        return self.hosts * self.ranks_per_host

    @property
    def starts_itself(self) -> bool:
        """Whether the command starts its ranks, as `busbw run` does.

        Any other command is the program of each rank.
        """
        return self.command[:2] == RUN


def plan(
    name: str, hosts: int, gpus_per_host: int, ranks: int | None, command: Sequence[str]
) -> Plan:
    """The plan. Without `ranks`: one per GPU, or one per host on CPUs.

    Raises UsageError if ranks are not a multiple of hosts, exceed the GPUs, or the command places
    ranks itself.
    """
    each, rest = divmod(hosts * max(gpus_per_host, 1) if ranks is None else ranks, hosts)
    if rest or not each:
        raise UsageError(
            f"--ranks {ranks}: not a multiple of {hosts} hosts",
            f"give a multiple, like --ranks {hosts * (each + 1)}",
        )
    if gpus_per_host and each > gpus_per_host:
        raise UsageError(
            f"--ranks {ranks}: {each} per host, which has {gpus_per_host} GPUs",
            "raise --gpus-per-host",
        )
    made = Plan(name, hosts, each, gpus_per_host, tuple(command) or DEFAULT)
    option = (
        next((word for word in made.command if word.partition("=")[0] in _PLACEMENT), None)
        if made.starts_itself
        else None
    )
    if option:
        raise UsageError(
            f"{option}: the manifest places the ranks",
            "leave it out, and give --hosts and --ranks before `--`",
        )
    return made


def flag_given(command: Sequence[str], name: str) -> bool:
    """Whether `--name` or `--name=value` is in the command."""
    return any(word.partition("=")[0] == name for word in command)
