"""What a manifest is asked for, whatever the target: hosts, ranks, GPUs, and the command."""

from collections.abc import Sequence
from dataclasses import dataclass

from busbw.core.errors import UsageError

RUN = ("busbw", "run")
DEFAULT = (*RUN, "all_reduce")
# What says where the ranks are is the manifest's own.
_PLACES = ("--hosts", "--hostfile", "--slurm", "--nodes", "--ntasks-per-node", "--gpus-per-node", "-n", "--ranks")


@dataclass(frozen=True, slots=True)
class Plan:
    """`hosts` hosts with `ranks_per_host` ranks and `gpus_per_host` GPUs (0: CPUs) each, that run `command`."""

    name: str
    hosts: int
    ranks_per_host: int
    gpus_per_host: int
    command: tuple[str, ...]

    @property
    def ranks(self) -> int:
        """Ranks in all."""
        return self.hosts * self.ranks_per_host

    @property
    def starts_itself(self) -> bool:
        """Whether the command starts its ranks, as `busbw run` does; any other is the program of each rank."""
        return self.command[:2] == RUN


def plan(name: str, hosts: int, gpus_per_host: int, ranks: int | None, command: Sequence[str]) -> Plan:
    """The plan; without `ranks`, one for each GPU, or one a host on CPUs.

    UsageError where ranks do not divide by hosts, there are more of them than GPUs, or the command says where the ranks are.
    """
    each, rest = divmod(hosts * max(gpus_per_host, 1) if ranks is None else ranks, hosts)
    if rest or not each:
        raise UsageError(f"--ranks {ranks}: they do not divide by {hosts} hosts", f"give a multiple, like --ranks {hosts * (each + 1)}")
    if gpus_per_host and each > gpus_per_host:
        raise UsageError(f"--ranks {ranks}: {each} on each host, which has {gpus_per_host} GPUs", "raise --gpus-per-host")
    made = Plan(name, hosts, each, gpus_per_host, tuple(command) or DEFAULT)
    place = next((word for word in made.command if word.partition("=")[0] in _PLACES), None) if made.starts_itself else None
    if place:
        raise UsageError(f"{place}: the manifest says where the ranks are", "leave it out, and give --hosts and --ranks before `--`")
    return made


def flag_given(command: Sequence[str], name: str) -> bool:
    """Whether `--name` or `--name=value` is among the words."""
    return any(word.partition("=")[0] == name for word in command)
