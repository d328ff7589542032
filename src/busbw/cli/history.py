"""`busbw history`: the runs of the past, and whether a run differs from them."""

import math
from pathlib import Path

import click

from busbw.cli import history_runs
from busbw.cli.file_kinds import read_bytes, read_sweep, result_in
from busbw.cli.options.history import HELP, db_option, filters, naming_run
from busbw.cli.options.parameters import ShareParam, is_given, not_empty
from busbw.cli.stored_runs import TakesRuns
from busbw.cli.streams import print_err, print_out
from busbw.cli.terminal import width
from busbw.core.collectives import collective as collective_row
from busbw.core.errors import Exit, UsageError
from busbw.core.history import HistoryBasis, HistoryCheck, Standing
from busbw.core.sizes import format_size, parse_size
from busbw.history import exported
from busbw.history import text as view
from busbw.history.store import LAST, baseline, opened
from busbw.history.text import changes
from busbw.report import results as result_json
from busbw.report.registry import kind
from busbw.stats.history import DEFAULT_TOLERANCE, check

MAX_TOLERATED = 1.5  # the largest ratio of times for which a hint proposes --tolerance
STANDINGS = {Standing.FINE: Exit.OK, Standing.SLOWER: Exit.BAD, Standing.UNKNOWN: Exit.UNKNOWN}


@click.group("history", context_settings=HELP, invoke_without_command=True)
@filters
@db_option
@click.pass_context
def command(context: click.Context, machine: str, collective: str, db: Path) -> int:
    """List the runs in the history, newest first; with a command, plot, check, add or remove runs.

    Every finished run, training, replay and plan is kept in this SQLite file, unless its command
    has --no-history. The oldest go when there are more than 2,000, or 200 MB of results; the file
    keeps the room. Runs that `add` added stay. `busbw show -1` prints the last run, `busbw compare
    -2 -1` compares the last two.

    A machine is its host names, its GPUs (names and number) and the engine.
    """
    if context.invoked_subcommand is not None:
        _refuse_options_before(context.invoked_subcommand)
        return int(Exit.OK)
    name = collective_row(collective).name if collective else ""
    with opened(db, create=False) as history:
        runs = history.runs(machine, name)
    if runs:
        print_out(view.listed(runs, width()))
    else:
        print_err("no such run")
    return int(Exit.OK)


def _refuse_options_before(subcommand: str) -> None:
    """UsageError for options of the list before another command, which would ignore them."""
    for name in filter(is_given, ("machine", "collective", "db")):
        raise UsageError(
            f"--{name} before {subcommand}: it is for the list of runs",
            f"busbw history {subcommand} --help",
        )


@command.command("add", cls=TakesRuns, context_settings=HELP)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--collective",
    default=None,
    callback=not_empty,
    help="the collective of logs that do not name it",
)
@db_option
def add(files: tuple[str, ...], collective: str | None, db: Path) -> int:
    """Add the results in FILE... (- = stdin): files as busbw show reads them, and what busbw
    history export printed. They stay until you remove them; -1 makes the last run stay.

    The same result twice is stored once. All are added, or none: when one cannot be read, or there
    is no room.
    """
    texts = [text for file in files for text in exported.split(read_bytes(file), file)]
    results = [result_in(text, name, collective) for name, text in texts]
    what = [kind(result).removeprefix("a ") for result in results]
    with opened(db, create=True) as history:
        added = history.add(results, [exported.when(text) for _, text in texts], what)
    for (name, _), (id, new) in zip(texts, added, strict=True):
        print_out(f"{name}: run {id}{'' if new else ', which was there already'}\n")
    return int(Exit.OK)


@command.command("plot", context_settings=HELP)
@click.option(
    "--size", required=True, help="the size whose busbw to plot: bytes, or a number with K, M or G"
)
@click.option(
    "--last", type=click.IntRange(1), default=LAST, show_default=True, help="runs to plot, at most"
)
@filters
@db_option
def plot(size: str, last: int, machine: str, collective: str, db: Path) -> int:
    """Plot one size's busbw over the last runs, for every machine and placement."""
    size_bytes = parse_size(size, "--size")
    name = collective_row(collective).name if collective else ""
    times, plotted = [], 0
    with opened(db, create=False) as history:
        for run in history.runs(machine, name):
            of_size = [time for time in history.times([run]) if time.key.size_bytes == size_bytes]
            times += of_size
            plotted += bool(of_size)
            if plotted == last:
                break
    if not times:
        raise UsageError(f"{db}: no such run has {format_size(size_bytes)}", "busbw history")
    print_out(view.plot(times, width()))
    return int(Exit.OK)


@command.command("check", cls=TakesRuns, context_settings=HELP)
@click.argument("file", metavar="FILE")
@click.option(
    "--last",
    type=click.IntRange(2),
    default=LAST,
    show_default=True,
    help="runs to compare with, at most",
)
@click.option(
    "--confidence",
    type=ShareParam(0.5, 1.0),
    default="95%",
    show_default=True,
    help="confidence level, over the whole sweep",
)
@click.option(
    "--tolerance",
    type=ShareParam(0.0, 10.0),
    default=f"{DEFAULT_TOLERANCE:.0%}",
    show_default=True,
    help="with few runs: largest difference treated as equal",
)
@click.option(
    "--collective",
    default=None,
    callback=not_empty,
    help="the collective of a log that does not name it",
)
@db_option
def check_(
    file: str, last: int, confidence: float, tolerance: float, collective: str | None, db: Path
) -> int:
    """Say whether the result in FILE (- = stdin) is slower than the last runs of its machine that
    have the same cells. -1 is the last run itself.

    Three runs show large changes, by their spread. 19 (at 95 %) also show small ones, by their
    order. The result is not added.
    """
    result = read_sweep(file, collective)
    with opened(db, create=False) as history:
        earlier = baseline(history, result, last)
        newest = next(iter(earlier), 0)
        with naming_run(newest):
            before = result_json.read(history.text(newest).encode()) if newest else None
    outcome = check(result, earlier, confidence, tolerance)
    if result.wrong():
        print_err(f"note: {file} had wrong data")
    elif not result.complete:
        print_err(f"note: {file} is of a sweep that did not end")
    differences = changes(before, result) if before else []
    if differences:
        print_err(f"note: unlike run {newest}: {', '.join(differences)}")
    print_out(view.checked(outcome, width()))
    if outcome.standing is Standing.UNKNOWN:
        print_err(f"\nhint: {_hint(outcome, last)}")
    return int(STANDINGS[outcome.standing])


def _hint(outcome: HistoryCheck, last: int) -> str:
    """What to do if the stored runs do not suffice for a verdict."""
    if outcome.unusual:
        ids = " ".join(map(str, outcome.unusual))
        return (
            f"{view.runs_text(outcome.unusual)} far from the others; remove what had a known fault:"
            f" busbw history rm {ids}"
        )
    if outcome.needed > last:
        return f"add --last {outcome.needed}"
    hint = "store more runs of this machine: busbw run, or busbw history add result.json"
    count = len(outcome.runs)
    if outcome.basis is HistoryBasis.NONE:
        if count >= 2:
            percent = 100 * (1 - 1 / (count + 1)) - 0.05
            hint += f", or be less sure: --confidence {percent:.1f}%"
        return hint
    largest = max(cell.most or math.inf for cell in outcome.cells)
    if largest <= MAX_TOLERATED:
        hint += f", or accept more: --tolerance {math.ceil(100 * (largest - 1))}%"
    return hint


for _subcommand in history_runs.COMMANDS:
    command.add_command(_subcommand)
