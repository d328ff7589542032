"""The options of `busbw run` that start the ranks with Slurm."""

from typing import Any

import click

from busbw.core.errors import UsageError
from busbw.launch.slurm import Step, split

OPTIONS = (
    click.option("--slurm", is_flag=True, help="start the ranks with srun, in this allocation or in one it asks for"),
    click.option("--nodes", type=click.IntRange(1), help="with --slurm: nodes  [default: the allocation's]"),
    click.option("--ntasks-per-node", type=click.IntRange(1), help="with --slurm: ranks on each node  [default: one per GPU]"),
    click.option("--gpus-per-node", type=click.IntRange(1), help="with --slurm: GPUs to ask for on each node"),
    click.option("--slurm-args", default="", help="with --slurm: other words for srun, like '-p gpu -A team -t 10 --exclusive'"),
)


def slurm_options(function: Any) -> Any:
    """Adds them to a command."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


def take_step(fields: dict[str, Any], ranks: int | None, hosts: bool) -> Step | None:
    """Takes these options out of a command's `fields`: the job step asked for, None without --slurm.

    UsageError where they are given without --slurm, or `hosts` (whether --hosts or --hostfile was given) contradicts it.
    """
    wanted = fields.pop("slurm")
    numbers = {name: fields.pop(name) for name in ("nodes", "ntasks_per_node", "gpus_per_node")}
    arguments = fields.pop("slurm_args")
    if not wanted:
        given = next((name for name, value in {**numbers, "slurm_args": arguments}.items() if value), None)
        if given:
            raise UsageError(f"--{given.replace('_', '-')} is for jobs that srun starts", "add --slurm")
        return None
    if hosts:
        raise UsageError("--slurm and --hosts both start the ranks", "leave out --hosts and --hostfile: Slurm knows its nodes")
    return Step(ranks, numbers["nodes"], numbers["ntasks_per_node"], numbers["gpus_per_node"], split(arguments))
