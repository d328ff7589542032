"""`busbw check job`: which rank a running job waits for, and the state of its host's port."""

from pathlib import Path

import click

from busbw.cli.options.parameters import Seconds, not_empty
from busbw.cli.options.shared import format_option, hosts_options
from busbw.cli.streams import print_json, print_out
from busbw.cli.terminal import width
from busbw.core.errors import UsageError
from busbw.core.finding import exit_of
from busbw.host import ras as service
from busbw.job import types as view
from busbw.job.driver import examine
from busbw.launch.hostfile import given_hosts
from busbw.pattern.pending_calls import outstanding


@click.command("job", context_settings={"help_option_names": ["-h", "--help"]})
@hosts_options("hosts of the job: h1,h2 or gpu[01-16]  [default: those that NCCL RAS names]")
@click.option(
    "--ras",
    default="",
    callback=not_empty,
    help="HOST:PORT of NCCL RAS  [default: localhost:28028 on a host of the job]",
)
@click.option(
    "--flight-recorder",
    "dumps",
    default="",
    callback=not_empty,
    metavar="DIR",
    help="dumps of PyTorch's Flight Recorder",
)
@click.option(
    "--interval",
    "seconds",
    type=Seconds(),
    default=5.0,
    show_default=True,
    help="time between the two readings",
)
@format_option
def command(
    hosts: str, hostfile: Path | None, ras: str, dumps: str, seconds: float, format_name: str
) -> int:
    """Find out whom a running job waits for: rank, process, host, GPU, collective, and the port
    that fails.

    Asks NCCL's RAS (2.24 and newer) twice, reads counters, GPUs and processes on the hosts in
    between, and dumps of the Flight Recorder. Changes nothing. Takes at
    most a minute beyond --interval.
    """
    if ras and service.host_and_port(ras) is None:
        raise UsageError(
            f"--ras {ras}: not HOST:PORT", "give an address like --ras localhost:28028"
        )
    names = [host.name for host in given_hosts(hosts, hostfile)]
    calls, unread = outstanding([dumps]) if dumps else ([], [])
    if dumps and not calls:
        unread.append(
            f"{dumps}: every collective in the dumps has ended, alike on all of the ranks"
        )
    report = examine(names, ras, seconds, calls, unread)
    if format_name == "json":
        print_json(report)
    else:
        print_out(view.text(report, width()))
    return int(exit_of([report.verdict]))
