"""`busbw history`: results of the past, and whether a run differs from them."""

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import click

from busbw.cli.parameters import File, Share, not_empty
from busbw.cli.show import read_sweep
from busbw.cli.streams import answer, talk
from busbw.cli.terminal import width
from busbw.core.collectives import collective as collective_row
from busbw.core.errors import UsageError
from busbw.core.exits import Exit
from busbw.core.history import Check, Standing
from busbw.core.sizes import format_size, parse_size
from busbw.history.baseline import baseline
from busbw.history.store import default_path, opened
from busbw.stats.history import check
from busbw.views import history as view

HELP = {"help_option_names": ["-h", "--help"]}
LAST = 30
STANDINGS = {Standing.FINE: Exit.OK, Standing.SLOWER: Exit.BAD, Standing.UNKNOWN: Exit.UNKNOWN}


def _db(function: Callable[..., Any]) -> Callable[..., Any]:
    text = "the history's file  [default: busbw/history.sqlite under $XDG_DATA_HOME or ~/.local/share]"
    return click.option("--db", type=File(), default=lambda: default_path(os.environ), help=text)(function)


def _filters(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option("--collective", default="", callback=not_empty, help="only runs of this collective")(function)
    return click.option("--machine", default="", callback=not_empty, help="only machines with this in their name")(function)


@click.group("history", context_settings=HELP)
def command() -> None:
    """Keep results in one SQLite file, list and plot them, and say whether a run differs from the last ones of its machine.

    A machine is its host names, its GPUs (names and number) and the engine. The file belongs on a local disk: SQLite's write-ahead log
    does not work over network file systems.
    """


@command.command("add", context_settings=HELP)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--collective", default=None, callback=not_empty, help="the collective of logs that do not name it")
@_db
def add(files: tuple[str, ...], collective: str | None, db: Path) -> int:
    """Add the results in FILE... (- = stdin), as busbw show reads them. The same result twice is stored once.

    All are added, or none: when one cannot be read, or there is no room.
    """
    results = [(file, read_sweep(file, collective)) for file in files]
    with opened(db, create=True) as history:
        added = history.add([result for _, result in results])
    for (file, _), (id, new) in zip(results, added, strict=True):
        answer(f"{file}: run {id}{'' if new else ', which was there already'}\n")
    return int(Exit.OK)


@command.command("list", context_settings=HELP)
@_filters
@_db
def list_(machine: str, collective: str, db: Path) -> int:
    """List the runs, newest first."""
    name = collective_row(collective).name if collective else ""
    with opened(db, create=False) as history:
        runs = history.runs(machine, name)
    if runs:
        answer(view.listed(runs, width()))
    else:
        talk("no such run")
    return int(Exit.OK)


@command.command("plot", context_settings=HELP)
@click.option("--size", required=True, help="the size whose busbw to plot: bytes, or a number with K, M or G")
@click.option("--last", type=click.IntRange(1), default=LAST, show_default=True, help="runs to plot, at most")
@_filters
@_db
def plot(size: str, last: int, machine: str, collective: str, db: Path) -> int:
    """Plot one size's busbw over the last runs, for every machine and placement."""
    wanted = parse_size(size, "--size")
    name = collective_row(collective).name if collective else ""
    with opened(db, create=False) as history:
        runs = history.runs(machine, name)
        having = {time.run.id for time in history.times(runs) if time.key.size_bytes == wanted}
        shown = list(islice((run for run in runs if run.id in having), last))
        times = [time for time in history.times(shown) if time.key.size_bytes == wanted]
    if not times:
        raise UsageError(f"{db}: no such run has {format_size(wanted)}", "busbw history list")
    answer(view.plot(times, width()))
    return int(Exit.OK)


@command.command("check", context_settings=HELP)
@click.argument("file", metavar="FILE")
@click.option("--last", type=click.IntRange(2), default=LAST, show_default=True, help="runs to compare with, at most")
@click.option("--confidence", type=Share(0.5, 1.0), default="95%", show_default=True, help="how sure to be, over the whole sweep")
@click.option("--collective", default=None, callback=not_empty, help="the collective of a log that does not name it")
@_db
def check_(file: str, last: int, confidence: float, collective: str | None, db: Path) -> int:
    """Say whether the result in FILE (- = stdin) is slower than the last runs of its machine that have the same cells.

    Exit code 1 when a cell is slower, 3 when too few runs are stored to tell. The result is not added.
    """
    result = read_sweep(file, collective)
    with opened(db, create=False) as history:
        earlier = baseline(history, result, last)
    found = check(result, earlier, confidence)
    if not result.complete or result.wrong():
        talk(f"note: {file} {'had wrong data' if result.wrong() else 'is of a sweep that did not end'}")
    answer(view.checked(found, width()))
    if found.standing is Standing.UNKNOWN:
        talk(f"\nhint: {_more(found, last)}")
    return int(STANDINGS[found.standing])


def _more(found: Check, last: int) -> str:
    """What would help where too few runs are there."""
    count = len(found.runs)
    if found.needed > last:
        return f"add --last {found.needed}"
    less = f", or be less sure: --confidence {100 * (1 - 1 / (count + 1)) - 0.05:.1f}%" if count >= 2 else ""
    return f"busbw history add result.json after each run{less}"
