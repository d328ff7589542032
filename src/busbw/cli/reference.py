"""`busbw reference`: published runs and your own, and a result beside them."""

from pathlib import Path

import click

from busbw.api.systems import LinkOptions
from busbw.cli import reference_table
from busbw.cli.config.reference import known_curves
from busbw.cli.file_kinds import read_sweep, table_option
from busbw.cli.options.history import HELP
from busbw.cli.options.parameters import is_given, not_empty
from busbw.cli.options.result_system import system_of
from busbw.cli.options.shared import format_option, reference_option
from busbw.cli.options.system import recorded_nodes_option, system_options
from busbw.cli.stored_runs import NAME, TakesRuns
from busbw.cli.streams import print_err, print_out
from busbw.cli.terminal import width
from busbw.core import json_codec
from busbw.core.collectives import collective as collective_row
from busbw.core.errors import Exit, UsageError
from busbw.model.gpu_hosts import gpu_hosts
from busbw.model.hardware import gpu_word
from busbw.model.reference.compared import ran_of
from busbw.model.reference.curves import Reference, ReferenceCurve
from busbw.model.systems import MAX_HOSTS, parse_system
from busbw.reference.comparison import compared_with, comparison_text
from busbw.reference.lists import list_text, part_of, run_text

OF_LIST = ("system", "nodes", "collective", "reference_file", "format_name")
OF_RESULT = ("system", "topo", "nics", "fabric", "nodes", "collective", "table", "plot")


@click.group("reference", context_settings=HELP, invoke_without_command=True)
@click.option(
    "--system",
    default="",
    callback=not_empty,
    help="only curves of this GPU, or of so many of it a host: h100, h100x8",
)
@click.option(
    "--nodes", type=click.IntRange(1, MAX_HOSTS), help="only curves of this number of hosts"
)
@click.option("--collective", default="", callback=not_empty, help="only curves of this collective")
@reference_option
@format_option
@click.pass_context
def command(
    context: click.Context,
    system: str,
    nodes: int | None,
    collective: str,
    reference_file: Path | None,
    format_name: str,
) -> int:
    """List the runs that results are compared with: published ones, and your own before them. With
    a command, show, add or remove runs.

    A line is a curve: one collective by size. `busbw predict`, `explain` and the verdict of
    `busbw run` rest on these.
    """
    if context.invoked_subcommand is not None:
        _refuse_options_before(context.invoked_subcommand)
        return int(Exit.OK)
    known = known_curves(reference_file)
    curves = _chosen(known, system, nodes, collective)
    if format_name == "json":
        print_out(json_codec.indented(part_of(known, curves)))
    elif curves:
        print_out(list_text(known, curves, width()))
    else:
        print_err("no such curve")
    return int(Exit.OK)


def _refuse_options_before(subcommand: str) -> None:
    """UsageError for options of the list before another command, which would ignore them."""
    for name in filter(is_given, OF_LIST):
        option = {"reference_file": "reference", "format_name": "format"}.get(name, name)
        raise UsageError(
            f"--{option} before {subcommand}: it is for the list of runs",
            f"busbw reference {subcommand} --help",
        )


def _chosen(
    known: Reference, system: str, nodes: int | None, collective: str
) -> list[ReferenceCurve]:
    """The user's own curves, then published ones, in the order of GPU and size of the job."""
    gpu, per_host = _system(system)
    name = collective_row(collective).name if collective else ""
    chosen = []
    for curves in (known.own, known.published):
        chosen += sorted(
            (
                curve
                for curve in curves
                if gpu in ("", curve.gpu)
                and per_host in (0, curve.per_host)
                and nodes in (None, curve.hosts)
                and name in ("", curve.collective)
            ),
            key=lambda curve: (curve.gpu, curve.hosts, curve.per_host, curve.collective),
        )
    return chosen


def _system(text: str) -> tuple[str, int]:
    """The GPU's word and the GPUs of a host; 0 for any number, '' for any GPU."""
    word = text.strip().lower()
    if word == "" or word in gpu_hosts():
        return word, 0
    system = parse_system(text)
    return gpu_word(system.gpu), system.gpus


@command.command("show", cls=TakesRuns, context_settings=HELP)
@click.argument("name", metavar="RUN|RESULT")
@system_options("as recorded")
@recorded_nodes_option
@click.option(
    "--collective",
    default=None,
    callback=not_empty,
    help="the collective of a log that does not name it",
)
@table_option
@click.option("--plot", is_flag=True, help="of a result: also a plot of its sizes")
@reference_option
@format_option
def show(
    name: str,
    system: str,
    topo: str,
    nics: str,
    fabric: str,
    cpu: str | None,
    nodes: int | None,
    collective: str | None,
    table: int | None,
    plot: bool,
    reference_file: Path | None,
    format_name: str,
) -> int:
    """Print a run of the list, with who measured it, or the sizes of a result beside their
    reference: the median of the runs of the same system and collective, and the range that is
    expected.

    RESULT is any file that busbw show reads (- = stdin), or a run of the history: -1 is the last.
    Where no run is of such a system, the range is that of similar systems or of the model.
    """
    known = known_curves(reference_file)
    runs = {curve.run for curve in (*known.own, *known.published)}
    if name in runs and not Path(name).exists():
        _refuse_options_of_results(name)
        curves = [curve for curve in (*known.own, *known.published) if curve.run == name]
        if format_name == "json":
            print_out(json_codec.indented(part_of(known, curves)))
        else:
            print_out(run_text(known, name, width()))
        return int(Exit.OK)
    if name != "-" and not NAME.fullmatch(name) and not Path(name).exists():
        raise UsageError(f"{name}: no run of this name, and no such file", "busbw reference")
    result = read_sweep(name, collective, table)
    described = system, topo, LinkOptions(nics, fabric, cpu)
    hardware, _, placement = system_of(result, name, described, nodes)
    comparison = compared_with(result, ran_of(result, hardware, placement), known, name)
    if format_name == "json":
        print_out(json_codec.indented(comparison))
    else:
        print_out(comparison_text(comparison, width(), plot=plot))
    return int(Exit.OK)


def _refuse_options_of_results(run: str) -> None:
    for name in filter(is_given, OF_RESULT):
        raise UsageError(f"--{name}: {run} is a run, not a result", f"leave out --{name}")


for _subcommand in reference_table.COMMANDS:
    command.add_command(_subcommand)
