"""`busbw reference add` and `remove`, which change the user's own table."""

from pathlib import Path

import click

from busbw.api.systems import LinkOptions
from busbw.cli.config.reference import reference_file as file_in_force
from busbw.cli.file_kinds import read_sweep, table_option
from busbw.cli.options.history import HELP
from busbw.cli.options.parameters import not_empty
from busbw.cli.options.result_system import system_of
from busbw.cli.options.shared import reference_option
from busbw.cli.options.system import recorded_nodes_option, system_options
from busbw.cli.stored_runs import TakesRuns
from busbw.cli.streams import print_err, print_out
from busbw.core.errors import Exit, UsageError, unknown
from busbw.core.result import Result
from busbw.core.settings import OFF
from busbw.core.sizes import counted
from busbw.model.reference.compared import ComparedRun, ran_of
from busbw.model.reference.curves import CurveSource, ReferenceCurve, ReferenceTable, built_in
from busbw.reference import additions
from busbw.reference.checked import check_curves
from busbw.reference.own_table import change
from busbw.reference.place import VARIABLE


@click.command("add", cls=TakesRuns, context_settings=HELP)
@click.argument("files", nargs=-1, required=True, metavar="RESULT...")
@system_options("as recorded")
@recorded_nodes_option
@click.option(
    "--collective",
    default=None,
    callback=not_empty,
    help="the collective of logs that do not name it",
)
@table_option
@reference_option
def add(
    files: tuple[str, ...],
    system: str,
    topo: str,
    nics: str,
    fabric: str,
    cpu: str | None,
    nodes: int | None,
    collective: str | None,
    table: int | None,
    reference_file: Path | None,
) -> int:
    """Add RESULT..., any files that busbw show reads (- = stdin), or runs of the history such as
    -1, to your own runs. Runs of the same system and collective are then compared with these, not
    with published ones.

    All are added, or none: a result with wrong data, an incomplete or simulated one, one with an
    injected fault, of an unknown GPU, with times that no such links can have, or that contradict
    other runs of the same job is refused.
    """
    place = _place(reference_file)
    described = system, topo, LinkOptions(nics, fabric, cpu)
    results = []
    for file in files:
        result = read_sweep(file, collective, table)
        additions.refuse_unhealthy(result, file)
        hardware, _, placement = system_of(result, file, described, nodes)
        results.append((file, result, ran_of(result, hardware, placement)))
    added: list[tuple[str, str]] = []
    change(place, lambda before: _with_results(before, results, added))
    for file, run in added:
        print_out(f"{file}: run {run}\n")
    return int(Exit.OK)


def _with_results(
    before: ReferenceTable,
    results: list[tuple[str, Result, ComparedRun]],
    added: list[tuple[str, str]],
) -> ReferenceTable:
    """The table with all results; each file and the name of its run go to `added`."""
    taken = {curve.run for curve in (*before.curves, *built_in().published)}
    placed = [("the table", curve) for curve in before.curves]
    curves: list[ReferenceCurve] = []
    sources: list[CurveSource] = []
    for file, result, ran in results:
        run = additions.run_name(file, taken)
        taken.add(run)
        of_result = additions.curves_of(result, ran, run, file)
        placed += [(file, curve) for curve in of_result]
        curves += of_result
        sources.append(additions.source_of(result, run, file))
        added.append((file, run))
    after = additions.with_curves(before, sources, curves)
    check_curves(placed, {source.key: source for source in after.sources})
    return after


@click.command("remove", context_settings=HELP)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@reference_option
def remove(runs: tuple[str, ...], reference_file: Path | None) -> int:
    """Remove your own runs: all of them, or none when one does not exist."""
    place = _place(reference_file)

    def without(before: ReferenceTable) -> ReferenceTable:
        after = before
        own = {curve.run: curve.run for curve in before.curves}
        for run in runs:
            if run not in own:
                raise unknown("run", run, own, f"{place}: ")
            after = additions.without_run(after, run)
        return after

    change(place, without)
    print_err(f"removed {counted(len(set(runs)), 'run')}")
    return int(Exit.OK)


def _place(reference_file: Path | None) -> Path:
    place = reference_file or file_in_force()
    if place is None:
        raise UsageError(
            f"{VARIABLE}={OFF[0]}, or the setting reference: no file of your own runs is in use",
            "name one with --reference FILE",
        )
    return place


COMMANDS = (add, remove)
