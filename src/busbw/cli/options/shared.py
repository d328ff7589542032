"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from busbw.cli.options.parameters import COUNT, File, Seconds, not_a_format, not_empty
from busbw.core.errors import UsageError
from busbw.core.networks import NETWORKS
from busbw.core.options import LAUNCH_LIMIT_S, LIMIT_S

if TYPE_CHECKING:
    from busbw.core.finding import Verdict

Decorator = Callable[[Any], Any]


def options(*decorators: Decorator) -> Decorator:
    """One decorator that adds several options in this order."""

    def decorate(command: Any) -> Any:
        for add in reversed(decorators):
            command = add(command)
        return command

    return decorate


RANKS_ON_HOSTS = "hosts and ranks on each: h1:8,h2:8 or gpu[01-16]:8"


def hosts_options(text: str) -> Decorator:
    """--hosts with this help, and --hostfile, for `given_hosts`."""
    return options(
        click.option("--hosts", default="", callback=not_empty, metavar="HOSTS", help=text),
        click.option(
            "--hostfile",
            type=File(),
            metavar="FILE",
            help="file of hosts: `h1 slots=8`, `h1:8`, or Slurm's `gpu[01-16]`",
        ),
    )


launch_limit_option = click.option(
    "--launch-limit",
    "launch_limit_s",
    type=Seconds(),
    default=60.0,
    show_default=True,
    help="seconds until a host answers",
)


limit_option = click.option(
    "--limit",
    "limit_s",
    type=Seconds(zero=True),
    default=LIMIT_S,
    show_default=True,
    help="give up after this time without a completed operation; 0 = no limit",
)


def interval_options(least_s: float, most_s: float) -> Decorator:
    """--interval within these, --count and --seconds of a watch."""
    return options(
        click.option(
            "--interval",
            "interval_s",
            type=Seconds(least=least_s, most=most_s),
            default="1s",
            show_default=True,
            help="time between readings, from 100ms",
        ),
        click.option(
            "--count", type=COUNT, help="stop after this many intervals  [default: until Ctrl-C]"
        ),
        click.option(
            "--seconds", type=Seconds(), help="seconds to measure  [default: until Ctrl-C]"
        ),
    )


start_options = options(
    click.option(
        "-np",
        "--ranks",
        type=click.IntRange(1),
        help="number of ranks  [default: all GPUs, or 2 on CPUs]",
    ),
    hosts_options(RANKS_ON_HOSTS),
    click.option(
        "--ifname",
        default="",
        callback=not_empty,
        metavar="NAME",
        help="network interface for MPI, PMIx, Gloo and NCCL",
    ),
    click.option(
        "--launch-limit",
        "launch_limit_s",
        type=Seconds(),
        default=LAUNCH_LIMIT_S,
        show_default=True,
        help="seconds until all ranks must have joined",
    ),
    click.option(
        "--slurm",
        is_flag=True,
        help="start the ranks with srun, in the current allocation or a new one",
    ),
    click.option(
        "--nodes",
        type=click.IntRange(1),
        help="with --slurm: number of hosts  [default: the allocation's]",
    ),
    click.option(
        "--ntasks-per-node",
        type=click.IntRange(1),
        help="with --slurm: ranks on each node  [default: one per GPU]",
    ),
    click.option(
        "--gpus-per-node", type=click.IntRange(1), help="with --slurm: GPUs to request on each node"
    ),
    click.option(
        "--slurm-args",
        default="",
        metavar="ARGS",
        help="with --slurm: other arguments for srun, like '-p gpu -A team -t 10 --exclusive'",
    ),
)
_networks = "; ".join(f"{row.name} = {row.meaning}" for row in NETWORKS)
net_option = click.option(
    "--net",
    type=click.Choice([row.name for row in NETWORKS]),
    show_default="NCCL's choice",
    help=f"network that NCCL must use: {_networks}",
)
result_options = options(
    click.option(
        "--json",
        "json_name",
        default="",
        callback=not_a_format,
        metavar="FILE",
        help="write the result to this file, updated after every row; - = stdout at the end",
    ),
    click.option("--force", is_flag=True, help="replace existing files"),
)
no_history_option = click.option(
    "--no-history",
    "history",
    flag_value=False,
    default=True,
    help="do not keep the finished run in the history (busbw history)",
)
format_option = click.option(
    "--format",
    "format_name",
    type=click.Choice(("table", "json")),
    default="table",
    show_default=True,
    help="output on stdout",
)


def _verdict(_context: click.Context, _option: click.Parameter, name: str) -> "Verdict":
    from busbw.core.finding import Verdict  # with msgspec, which --help does not need

    return Verdict(name)


fail_on_option = click.option(
    "--fail-on",
    type=click.Choice(["fail", "warn"]),
    callback=_verdict,
    default="fail",
    show_default=True,
    help="warn: exit code 1 for a warning too",
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="print the launcher's command line and stop"
)


_REFERENCE_HELP = (
    "the file of your own runs  [default: the setting `reference`, or busbw/reference.json under"
    " $XDG_DATA_HOME or ~/.local/share]"
)


def reference_option(function: Any) -> Any:
    """Add --reference, as the parameter `reference_file`; None for no own runs."""
    option = click.option("--reference", "reference_file", type=File(), help=_REFERENCE_HELP)
    return option(function)


def result_file(json_name: str) -> Path | None:
    """The file that --json names; None for stdout and without --json."""
    return Path(json_name) if json_name not in ("", "-") else None


def take_where(fields: dict[str, Any]) -> dict[str, Any]:
    """Take the options that say where ranks start out of a command's `fields`, for measure.target.

    UsageError for options of Slurm without --slurm, and for hosts with it.
    """
    taken = {name: fields.pop(name) for name in ("ranks", "hosts", "hostfile", "ifname")}
    slurm, arguments = fields.pop("slurm"), fields.pop("slurm_args")
    numbers: dict[str, int | None] = {
        name: fields.pop(name) for name in ("nodes", "ntasks_per_node", "gpus_per_node")
    }
    if not slurm:
        for name, value in {**numbers, "slurm_args": arguments}.items():
            if value:
                raise UsageError(
                    f"--{name.replace('_', '-')} is for jobs that srun starts", "add --slurm"
                )
        return taken
    if taken["hosts"] or taken["hostfile"]:
        raise UsageError(
            "--slurm and --hosts both start the ranks",
            "leave out --hosts and --hostfile: Slurm chooses the nodes",
        )
    from busbw.launch.slurm import JobStep, split

    step = JobStep(
        taken["ranks"],
        numbers["nodes"],
        numbers["ntasks_per_node"],
        numbers["gpus_per_node"],
        split(arguments),
    )
    return taken | {"step": step}


def refuse_ran(format_name: str) -> None:
    """UsageError for --ran with an output that is no table."""
    if format_name != "table":
        raise UsageError(
            f"--ran adds columns to the table, not to {format_name}",
            "leave out --ran; json always has what NCCL ran",
        )


def run_options(*formats: str) -> Decorator:
    """Those of a command that starts ranks and prints one result, in the first format if none is
    named.
    """
    return options(
        start_options,
        net_option,
        dry_run_option,
        click.option(
            "--format",
            "format_name",
            type=click.Choice(formats),
            default=formats[0],
            show_default=True,
            help="output on stdout",
        ),
        result_options,
        no_history_option,
    )
