"""`busbw backends`: which implementation of a collective is the fastest at which size."""

import os
from collections.abc import Sequence
from typing import Any

import click

from busbw.backends import text as backends_text
from busbw.backends.driver import measure
from busbw.backends.rails import parse
from busbw.backends.registry import BACKENDS, BY_NAME
from busbw.backends.types import IN_GRAPH, BackendsJob
from busbw.cli.options import groups, shared
from busbw.cli.options.grouped import GroupedCommand
from busbw.cli.options.parameters import Seconds, is_given
from busbw.cli.options.sweep import sweep_options
from busbw.cli.run_job import take_run_options
from busbw.core.backend_names import parse_names
from busbw.core.collectives import collective
from busbw.core.errors import UsageError
from busbw.core.sweep import Sampling, SweepSpec, check_elements, check_spec
from busbw.launch.environment import detect
from busbw.launch.hosts import share
from busbw.measure.target import LaunchTarget

DEFAULTS = {"min_bytes": 1 << 10, "max_bytes": 64 << 20, "step_factor": 2, "datatype": "bfloat16"}
MAX_TIME_S = 0.2  # of each backend, size and mode
MAX_BLOCKS, LARGEST_BLOCK = 1024, 16 << 20


@click.command(
    "backends",
    cls=GroupedCommand,
    groups=groups.BACKENDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("name", metavar="[COLLECTIVE]", default="all_reduce")
@click.option(
    "--backends",
    "names",
    default="",
    metavar="LIST",
    help=f"compare these: {', '.join(row.name for row in BACKENDS)}  [default: all that can run]",
)
@click.option(
    "--in-graph",
    type=click.IntRange(0, 256),
    default=IN_GRAPH,
    show_default=True,
    help="calls in a CUDA graph, as in a decode step; 0: no graphs",
)
@click.option(
    "--copies",
    is_flag=True,
    help="include copies into symmetric memory and back, for tensors that are elsewhere",
)
@click.option(
    "--blocks",
    type=click.IntRange(0, MAX_BLOCKS),
    default=0,
    help="sendrecv: number of scattered blocks in a call, each of the row's size, as in a KV cache",
)
@click.option(
    "--rail",
    "rails",
    multiple=True,
    metavar="NIC",
    help="measure over this NIC alone: an interface, an RDMA device or a network (10.1.0.0/16);"
    " repeat it to compare NICs, and all of them together; NIC=100Gbit/s sets its line rate;"
    " all: every NIC of this host",
)
@click.option(
    "--max-time",
    "max_time_s",
    type=Seconds(),
    default=MAX_TIME_S,
    show_default=True,
    help="target time per size of each backend and mode",
)
@shared.limit_option
@shared.run_options("table", "json")
@sweep_options(DEFAULTS)
def command(
    name: str,
    names: str,
    in_graph: int,
    copies: bool,
    blocks: int,
    rails: tuple[str, ...],
    max_time_s: float,
    **fields: Any,
) -> int:
    """Measure the implementations of COLLECTIVE in turn, each called alone and in CUDA graphs, and
    say which is the fastest at which size.

    PyTorch starts the ranks. The data of each backend is verified at each size. The first backend
    is the default, with which others are compared. FlashInfer compiles its kernels at
    first use; allow for that with --launch-limit 900.
    """
    options = take_run_options(fields)
    name = collective(name).name
    backends = parse_names(BY_NAME, names)
    _check_blocks(name, blocks, backends, copies=copies)
    _check_rails(rails, options.where)
    sweep = {field: fields.pop(field) for field in DEFAULTS}
    unset = tuple(field for field in DEFAULTS if not is_given(field))
    if blocks and "max_bytes" in unset:
        sweep["max_bytes"] = LARGEST_BLOCK
    job = BackendsJob(
        engine="torch",
        program="busbw backends",
        **options.job_fields,
        sweep=SweepSpec(
            collective=name,
            sampling=Sampling(precision=0.0, max_time_s=max_time_s, all_time=True),
            **sweep,
        ),
        unset=unset,
        backends=backends,
        in_graph=in_graph,
        copies=copies,
        blocks=blocks,
        rails=parse(rails),
    )
    check_spec(job.sweep, strict=True)
    check_elements(job.sweep)
    return options.print_at_end(job, backends_text.render, start=measure)


def _check_blocks(name: str, blocks: int, backends: Sequence[str], *, copies: bool) -> None:
    """UsageError for blocks where nothing moves them, and for what moves blocks without any."""
    if blocks and name != "sendrecv":
        raise UsageError(
            f"--blocks {blocks}: {name} moves no scattered blocks",
            f"busbw backends sendrecv --blocks {blocks}",
        )
    if blocks and copies:
        raise UsageError(
            "--copies: blocks are not copied into symmetric memory", "leave out --copies"
        )
    of_blocks = next((each for each in backends if BY_NAME[each].of_blocks), "")
    if of_blocks and not blocks:
        raise UsageError(
            f"--backends {of_blocks}: it moves blocks, and --blocks does not say how many",
            f"busbw backends sendrecv --blocks 64 -b 4K -e 16M --backends {of_blocks}",
        )


def _check_rails(rails: Sequence[str], where: LaunchTarget) -> None:
    """UsageError where ranks use no NIC, or are not started once for each."""
    if rails and detect(os.environ) is not None:
        raise UsageError(
            "--rail starts the ranks once for each NIC, but another launcher has started this one",
            "leave out mpirun, srun or torchrun: --hosts or --slurm",
        )
    if rails and _on_one_host(where):
        raise UsageError(
            f"--rail {rails[0]}: ranks on one host use no NIC",
            "start them on two hosts: --hosts h1:1,h2:1",
        )


def _on_one_host(where: LaunchTarget) -> bool:
    """Whether all ranks are started there, as far as it is known before Slurm chooses nodes."""
    if where.step:
        return where.step.nodes == 1
    hosts = where.named()
    return not hosts or len(share(hosts, where.ranks)) == 1
