"""`busbw ideal`: the most busbw that a system's links and NCCL's algorithms allow."""

import click

from busbw.cli.options.parameters import not_empty
from busbw.cli.options.shared import format_option
from busbw.cli.options.system import given_system, nccl_option, system_options, this_system
from busbw.cli.streams import answer
from busbw.cli.terminal import width
from busbw.core.alltoallv import Traffic, traffic
from busbw.core.collectives import collective as collective_row
from busbw.core.errors import Exit, UsageError
from busbw.core.sizes import parse_size
from busbw.core.sweep import SweepSpec, check_spec
from busbw.measure.alltoallv import Matrices
from busbw.model import explanation_text, ideal_text
from busbw.model.nccl.constants import release
from busbw.model.predict import check, ideals
from busbw.model.systems import MAX_HOSTS as MOST_HOSTS


@click.command("ideal", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("collective", default="all_reduce")
@system_options("this host")
@click.option(
    "--nodes",
    type=click.IntRange(1, MOST_HOSTS),
    default=1,
    show_default=True,
    help="number of hosts",
)
@click.option("--gpus", type=click.IntRange(1), help="GPUs used on each host  [default: all]")
@click.option("-e", "--size", default="16G", show_default=True, help="size for NCCL's model")
@nccl_option
@click.option(
    "--counts",
    default="",
    callback=not_empty,
    help="alltoallv: bytes of each pair of ranks, as in busbw run",
)
@format_option
def command(
    collective: str,
    system: str,
    topo: str,
    nics: str,
    cpu: str | None,
    nodes: int,
    gpus: int | None,
    size: str,
    nccl: str,
    counts: str,
    format_name: str,
) -> int:
    """Print the bounds of COLLECTIVE for each algorithm: over the links, over what they carry of
    data, and by NCCL's cost model.

    The system is this host, or what --system or --topo describe.
    """
    row, size_bytes, table = collective_row(collective), parse_size(size, "-e"), release(nccl)
    hardware, source = given_system(system, topo, nics, cpu) or this_system(nics, cpu)
    per_host = gpus or hardware.gpus
    check(hardware, nodes, per_host)
    if nodes * per_host < 2 or size_bytes < 1:
        raise UsageError(
            "with one rank, or without bytes, no data crosses a link",
            "give --nodes, --gpus and --size for more",
        )
    moved = _traffic(row.name, counts, size_bytes, nodes, per_host) if counts else None
    levels = ideals(row, hardware, nodes, per_host, size_bytes, table, source, traffic=moved)
    if format_name == "json":
        answer(explanation_text.json(levels))
    else:
        answer(ideal_text.text(levels, width()))
    return int(Exit.OK)


def _traffic(collective: str, counts: str, size: int, hosts: int, per_host: int) -> Traffic:
    spec = SweepSpec(collective=collective, min_bytes=size, max_bytes=size, counts=counts)
    check_spec(spec, strict=True)
    ranks = hosts * per_host
    matrices = Matrices(spec, ranks)
    host_of_rank = [str(rank // per_host) for rank in range(ranks)]
    moved = traffic(matrices.at(size, size), matrices.source, host_of_rank)
    if moved is None:
        raise UsageError(
            f"--counts {counts}: no byte of {size} crosses a link",
            "give a larger --size, or other counts",
        )
    return moved
