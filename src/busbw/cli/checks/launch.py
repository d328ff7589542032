"""`busbw check launch`: the first stage of a launch over several hosts that fails."""

from pathlib import Path

import click

from busbw.check.doctor import launching
from busbw.check.doctor import text as launch_text
from busbw.check.doctor.networks import LaunchContext
from busbw.cli.options.parameters import Seconds, not_empty
from busbw.cli.options.shared import RANKS_ON_HOSTS, fail_on_option, format_option, hosts_options
from busbw.cli.streams import print_json, print_out
from busbw.cli.terminal import width
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict, exit_of
from busbw.launch.hostfile import given_hosts


@click.command("launch", context_settings={"help_option_names": ["-h", "--help"]})
@hosts_options(RANKS_ON_HOSTS)
@click.option(
    "--ifname",
    default="",
    callback=not_empty,
    help="interface or subnet to use, instead of the first that works",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "nccl", "mpi"]),
    default="auto",
    show_default=True,
    help="who moves the data; mpi: CPUs, also where there are GPUs",
)
@click.option(
    "--limit",
    "limit_s",
    type=Seconds(),
    default=30.0,
    show_default=True,
    help="give up after this time on a stage",
)
@fail_on_option
@format_option
def command(
    hosts: str,
    hostfile: Path | None,
    ifname: str,
    engine: str,
    limit_s: float,
    fail_on: Verdict,
    format_name: str,
) -> int:
    """Find out why a launch over several hosts fails: ssh, busbw, names, subnets, TCP, mpirun, MPI,
    NCCL, a small all_reduce.

    It stops at the first stage that fails, with its cause. If none does, it prints command lines
    that work.
    """
    named = given_hosts(hosts, hostfile)
    if len(named) < 2:
        raise UsageError(
            "busbw check launch needs two hosts or more", "name them: --hosts h1:8,h2:8"
        )
    context, done = LaunchContext(named, limit_s, ifname, engine), []
    for stage in launching.stages(context):
        done.append(stage)
        if format_name == "table":
            print_out(launch_text.stage(stage, width()))
    diagnosis = launching.diagnosis(context, done)
    if format_name == "json":
        print_json(diagnosis)
    else:
        print_out(launch_text.commands(diagnosis))
    return int(exit_of((stage.verdict for stage in done), fail_on))
