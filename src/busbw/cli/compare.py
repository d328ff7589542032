"""`busbw compare A B`: is the second run as fast as the first."""

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from busbw.api.comparison import files_of_runs, stored_times
from busbw.cli.ab_runs import OptionSet, Sweep, Turns
from busbw.cli.file_kinds import read_sweep
from busbw.cli.options.history import db_option
from busbw.cli.options.judging import judging_options
from busbw.cli.options.parameters import is_given, not_empty, shell_words
from busbw.cli.stored_runs import TakesRuns
from busbw.cli.streams import print_err, print_out
from busbw.cli.terminal import width
from busbw.core.comparison import Comparison
from busbw.core.errors import Exit, UsageError
from busbw.core.sizes import counted
from busbw.history import comparison
from busbw.stats.compare import Named, compare
from busbw.stats.judging import Limits

FORMATS: dict[str, Callable[[Comparison], str]] = {
    "text": lambda compared: comparison.text(compared, width()),
    "markdown": comparison.markdown,
    "json": comparison.json,
    "junit": comparison.junit,
}


@click.command("compare", cls=TakesRuns, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("words", nargs=-1, metavar="A B")
@click.option(
    "--run",
    "runs",
    multiple=True,
    metavar="OPTIONS",
    help="twice: run `busbw run` with these options in turn, and compare",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 100),
    default=4,
    show_default=True,
    help="with --run: runs of each",
)
@judging_options
@click.option(
    "--format",
    "format_name",
    type=click.Choice(list(FORMATS)),
    default="text",
    show_default=True,
    help="how to print it",
)
@click.option(
    "--collective",
    default=None,
    callback=not_empty,
    help="the collective of logs that do not name it",
)
@click.option(
    "--table",
    "tables",
    type=click.IntRange(1),
    multiple=True,
    help="which table of logs that hold several; twice: of A, of B",
)
@db_option
def command(
    words: tuple[str, ...],
    runs: tuple[str, ...],
    rounds: int,
    tolerance: float,
    confidence: float,
    format_name: str,
    collective: str | None,
    tables: tuple[int, ...],
    db: Path,
) -> int:
    """Compare B with A, cell by cell: same, slower, faster, ambiguous or unmatched.

    A and B are files as busbw show reads them (- = stdin), runs of the history (-1 = the last one,
    -2 = the one before, run:12 = the one with id 12), or directories whose files are repeated runs
    of one sweep. Exit code 1 when a cell is slower by more than the tolerance, 3 when no cell
    has a verdict, or a later round of --run failed.

    With one run a side, runs of the same machine and sweep in the history say how much runs differ.

    With --run it measures both itself: busbw compare --run '--net ib' --run '--net socket' --
    all_reduce -b 1M -e 1G
    """
    failed = False
    if runs:
        turns = _measure(runs, words, rounds)
        first, second = turns.results[0, 0], turns.results[0, 1]
        failed = turns.failed
    else:
        first, second = _load_both(words, collective, tables)
    earlier = stored_times(first, second, db, required=is_given("db"), note=print_err)
    compared = compare(first, second, Limits(tolerance, confidence), earlier)
    print_out(FORMATS[format_name](compared))
    if compared.beyond():
        return int(Exit.BAD)
    return int(Exit.OK if compared.has_verdict() and not failed else Exit.UNKNOWN)


def _measure(runs: Sequence[str], sweep: Sequence[str], rounds: int) -> Turns:
    if len(runs) != 2:
        raise UsageError(
            f"--run is given {counted(len(runs), 'time')}", "give it twice: for A, then for B"
        )
    if not sweep:
        raise UsageError(
            "--run without a collective",
            "name it with its options after --, like -- all_reduce -b 1M -e 1G",
        )
    sides = [OptionSet(text, shell_words("--run", text)) for text in runs]
    turns = Turns(sides, [Sweep("", sweep)])
    turns.run(rounds)
    return turns


def _load_both(
    words: Sequence[str], collective: str | None, tables: Sequence[int]
) -> list[list[Named]]:
    if len(words) != 2:
        raise UsageError(
            f"{counted(len(words), 'result')} to compare",
            "name two: busbw compare A.json B.json, or the last two runs: busbw compare -2 -1",
        )
    a, b = words
    if a == b == "-":
        raise UsageError("A and B are both stdin", "name a file for one of them")
    if len(tables) > 2:
        raise UsageError(
            f"--table is given {len(tables)} times",
            "give it once for both sides, or twice: for A, then for B",
        )
    table_a, table_b = (tables[0], tables[-1]) if tables else (None, None)
    return [load(a, collective, table_a), load(b, collective, table_b)]


def load(name: str, collective: str | None, table: int | None = None) -> list[Named]:
    """The runs in a file, or in the files of a directory."""
    files = [name] if name == "-" else files_of_runs(name)
    return [(file, read_sweep(file, collective, table)) for file in files]
