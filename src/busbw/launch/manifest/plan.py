"""What every manifest contains: hosts, ranks, GPUs and the command; and the sbatch script.

The script runs the command on whole nodes: other jobs would disturb the measurement.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from busbw.core.errors import UsageError
from busbw.launch.manifest.filler import fill_script
from busbw.launch.slurm import TASKS

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
    "-np",
    "--ranks",
)
# Allowed in option values: no white space, comment or shell syntax.
_VALUE = re.compile(r"[A-Za-z0-9_.,:@%/+-]+")


@dataclass(frozen=True, slots=True)
class Plan:
    """A job of `hosts` hosts that run `command`.

    Each host has `ranks_per_host` ranks and `gpus_per_host` GPUs (0 for ranks on CPUs).
    """

    name: str
    hosts: int
    ranks_per_host: int
    gpus_per_host: int
    command: tuple[str, ...]

    @property
    def ranks(self) -> int:
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
    """The plan of a job; without `ranks` it has one rank per GPU, or one per host on CPUs.

    UsageError if the ranks are not a multiple of the hosts or exceed the GPUs, or if the command
    places ranks itself.
    """
    total = hosts * max(gpus_per_host, 1) if ranks is None else ranks
    per_host, remainder = divmod(total, hosts)
    if remainder or not per_host:
        raise UsageError(
            f"--ranks {ranks}: not a multiple of {hosts} hosts",
            f"give a multiple, like --ranks {hosts * (per_host + 1)}",
        )
    if gpus_per_host and per_host > gpus_per_host:
        raise UsageError(
            f"--ranks {ranks}: {per_host} per host, which has {gpus_per_host} GPUs",
            "raise --gpus-per-node",
        )
    job = Plan(name, hosts, per_host, gpus_per_host, tuple(command) or DEFAULT)
    placing = [word for word in job.command if word.partition("=")[0] in _PLACEMENT]
    if job.starts_itself and placing:
        raise UsageError(
            f"{placing[0]}: the manifest places the ranks",
            "leave it out, and give --nodes and --ranks before `--`",
        )
    return job


def flag_given(command: Sequence[str], name: str) -> bool:
    """Whether `--name` or `--name=value` is in the command."""
    return any(word.partition("=")[0] == name for word in command)


@dataclass(frozen=True, slots=True)
class Site:
    """Settings of the cluster; '' leaves an option at its default."""

    partition: str = ""
    account: str = ""
    time: str = ""


def text(plan: Plan, site: Site) -> str:
    """The sbatch script. UsageError for a value that sbatch could not read."""
    options = {
        "name": plan.name,
        "partition": site.partition or None,
        "account": site.account or None,
        "time": site.time or None,
        "output": f"{plan.name}-%j.log",
    }
    for name, value in options.items():
        if value is not None and not _VALUE.fullmatch(value):
            message = f"--{name} '{value}': sbatch could not read it"
            raise UsageError(message, "use letters, digits and .,:_-")
    starter = ["srun", "--mpi=pmix", *TASKS]
    words = [*plan.command, "--slurm"] if plan.starts_itself else [*starter, *plan.command]
    values = {
        **options,
        "hosts": plan.hosts,
        "ranks_per_host": plan.ranks_per_host,
        "gpus_per_host": plan.gpus_per_host or None,
        "command": words,
    }
    return fill_script("sbatch.sh", values)
