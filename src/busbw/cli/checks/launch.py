"""`busbw check launch`: the first stage of a launch over several hosts that fails."""

import click
import msgspec

from busbw.check.doctor import launching
from busbw.check.doctor import text as launch_text
from busbw.check.doctor.networks import LaunchContext
from busbw.cli.options.parameters import Seconds, not_empty
from busbw.cli.options.shared import fail_on_option, format_option
from busbw.cli.streams import print_out
from busbw.cli.terminal import width
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict, exit_of
from busbw.launch.hostfile import given_hosts


@click.command("launch", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--hosts",
    default="",
    callback=not_empty,
    help="hosts and ranks on each: h1:8,h2:8 or gpu[01-16]:8",
)
@click.option(
    "--hostfile",
    default="",
    callback=not_empty,
    help="file of hosts: `h1 slots=8`, or `gpu[01-16]`",
)
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
    help="mpi: test CPUs also where there are GPUs",
)
@click.option(
    "--limit",
    "limit_s",
    type=Seconds(),
    default=30.0,
    show_default=True,
    help="seconds for each stage",
)
@fail_on_option
@format_option
def command(
    hosts: str,
    hostfile: str,
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
        print_out(msgspec.json.format(msgspec.json.encode(diagnosis), indent=1).decode() + "\n")
    else:
        print_out(launch_text.commands(diagnosis))
    return int(exit_of((stage.verdict for stage in done), fail_on))
