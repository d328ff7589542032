"""`busbw run`: measure one collective."""

from typing import Any

import click

from busbw.cli.options import groups
from busbw.cli.options.grouped import GroupedCommand
from busbw.cli.options.minimum import minimum_options
from busbw.cli.options.nccl import nccl_options, print_env_option
from busbw.cli.options.parameters import Seconds, not_empty
from busbw.cli.options.sampling import sampling_options
from busbw.cli.options.shared import (
    dry_run_option,
    fail_on_option,
    net_option,
    no_history_option,
    options,
    result_options,
    start_options,
)
from busbw.cli.options.sweep import SOAK_ROUNDS, SWEEP_OPTIONS, sweep_option
from busbw.core.options import LIMIT_S
from busbw.engines.registry import ENGINES
from busbw.report.registry import VIEWS

FULL_ROWS = "; if not given, the first of these sizes at which every rank has an element"


@click.command(
    "run",
    cls=GroupedCommand,
    groups=groups.RUN,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("name", metavar="COLLECTIVE", default="")
@start_options
@net_option
@nccl_options
@click.option(
    "--engine",
    default="auto",
    callback=not_empty,
    show_default=True,
    metavar="ENGINE",
    help=f"who moves the data: auto, {', '.join(row.name for row in ENGINES)}",
)
@click.option(
    "--sim",
    "simulation",
    default="",
    metavar="NAME=VALUE,...",
    help="parameters of the sim engine: alpha_us=5,gbps=370,noise=0.01",
)
@click.option(
    "--inject",
    default="",
    metavar="FAULT",
    help="inject a fault: late:rank=2,us=200; the run is not kept in the history",
)
@click.option(
    "--counts",
    default="",
    metavar="COUNTS",
    callback=not_empty,
    help=(
        "alltoallv: bytes of each pair of ranks: zipf:1.05[,rows=N][,ids=N,dedup][,sorted|,seed=N],"
        " or file:NAME"
    ),
)
@click.option(
    "--watch",
    is_flag=True,
    help="show for each size what the ports and NVLinks carried and lost (precise timing)",
)
@click.option(
    "--ideal",
    default="",
    callback=not_empty,
    metavar="RATE",
    help="ideal busbw, instead of the one from the topology: 450GB/s",
)
@click.option(
    "--format",
    "format_name",
    metavar="FORMAT",
    default="table",
    show_default=True,
    help=f"output on stdout: {', '.join(row.name for row in VIEWS)}",
)
@click.option(
    "--ran",
    is_flag=True,
    help="columns with NCCL's algorithm, protocol and channels, and how ranks are connected",
)
@click.option("--brief", is_flag=True, help="the same as --format brief")
@fail_on_option
@minimum_options
@result_options
@click.option(
    "--html",
    "html_name",
    default="",
    callback=not_empty,
    help="write the finished run to this file as one HTML page, as busbw report does",
)
@no_history_option
@dry_run_option
@print_env_option
@click.option(
    "--limit",
    "limit_s",
    type=Seconds(zero=True),
    default=LIMIT_S,
    show_default=True,
    help=(
        "give up after this time without a completed operation; more if the previous size was"
        " slow; 0 = no limit"
    ),
)
@click.option(
    "--soak",
    "soak_s",
    type=Seconds(),
    default=None,
    help=(
        f"repeat the sweep for so many seconds, with {SOAK_ROUNDS} data checks per row, and stop at"
        " the first wrong data"
    ),
)
@sampling_options
@options(
    *(sweep_option(row, FULL_ROWS if row.field == "min_bytes" else "") for row in SWEEP_OPTIONS)
)
def command(**fields: Any) -> int:
    """Measure COLLECTIVE (all_reduce, all-gather, AllToAll ...) over all local GPUs, or over the
    given ranks or hosts.

    Under mpirun, srun or torchrun each process is a rank of the existing job.
    """
    from busbw.cli.run_sweep import run_sweep  # imports what measures, which --help need not

    return run_sweep(**fields)
