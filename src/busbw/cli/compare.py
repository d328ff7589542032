"""`busbw compare A B`: is the second run as fast as the first."""

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from busbw.api.comparison import files_of_runs, stored_times
from busbw.api.files import comparable
from busbw.cli.ab_runs import OptionSet, Sweep, Turns
from busbw.cli.file_kinds import note_unread, read_bytes, result_in
from busbw.cli.options.history import db_option
from busbw.cli.options.judging import judging_options
from busbw.cli.options.parameters import given_options, is_given, not_empty, shell_words
from busbw.cli.options.shared import fail_on_option
from busbw.cli.stored_runs import TakesRuns
from busbw.cli.streams import print_err, print_json, print_out
from busbw.cli.terminal import width
from busbw.core.comparison import Comparison
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict, exit_of
from busbw.core.sizes import counted
from busbw.history import comparison_text
from busbw.host.snapshot import MADE_BY, archives_in, is_archive
from busbw.stats.compare import Named, compare
from busbw.stats.judging import Limits

FORMATS: dict[str, Callable[[Comparison], str]] = {
    "text": lambda compared: comparison_text.text(compared, width()),
    "markdown": comparison_text.markdown,
    "json": comparison_text.json,
    "junit": comparison_text.junit,
}
OF_SNAPSHOTS = ("text", "json", "junit")
RECORDED, MEASURED, SNAPSHOTS = "recorded runs", "--run", "snapshots"
# The parameters that have no meaning for every input, with the inputs that they are for.
MEANT_FOR = {
    "rounds": (MEASURED,),
    "tolerance": (RECORDED, MEASURED),
    "confidence": (RECORDED, MEASURED),
    "db": (RECORDED, MEASURED),
    "collective": (RECORDED,),
    "tables": (RECORDED,),
    "expect": (SNAPSHOTS,),
    "fail_on": (SNAPSHOTS,),
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
    help="with --run: times to run each in turn",
)
@judging_options
@click.option(
    "--format",
    "format_name",
    type=click.Choice(list(FORMATS)),
    default="text",
    show_default=True,
    help="output on stdout",
)
@click.option(
    "--collective",
    default=None,
    callback=not_empty,
    help="of recorded runs: the collective of logs that do not name it",
)
@click.option(
    "--table",
    "tables",
    type=click.IntRange(1),
    multiple=True,
    help="which table of logs that hold several, for recorded runs; twice: of A, of B",
)
@click.option(
    "--expect",
    default="",
    callback=not_empty,
    metavar="FILE",
    help="of snapshots: also compare each node with what a node should have; - = stdin",
)
@fail_on_option
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
    expect: str,
    fail_on: Verdict,
    db: Path,
) -> int:
    """Compare B with A, cell by cell: same, slower, faster, ambiguous or unmatched.

    A and B are files as busbw show reads them (- = stdin), runs of the history (-1 = the last one,
    -2 = the one before, run:12 = the one with id 12), or directories whose files are repeated runs
    of one sweep. Results of busbw backends, overlap and moe are compared by each time in them.

    With one run a side, runs of the same machine and sweep in the history say how much runs differ.

    Snapshots of busbw check, or folders of them, are compared by node: which findings are new,
    worse, gone or unchanged, and which facts, such as an MTU or a firmware, have changed.

    With --run it measures both itself: busbw compare --run '--net ib' --run '--net socket' --
    all_reduce -b 1M -e 1G

    --tolerance, --confidence and --db are for runs, recorded or measured; --fail-on is for
    snapshots.
    """
    sides = [] if runs else _snapshots(words)
    if sides:
        _refuse_options(SNAPSHOTS)
        return _compare_snapshots(words, sides, format_name, expect, fail_on)
    _refuse_options(MEASURED if runs else RECORDED)
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
    return int(exit_of(compared.verdicts() + [Verdict.UNKNOWN] * failed))


def _refuse_options(compared: str) -> None:
    """UsageError for an option that has no meaning for what is compared."""
    for parameter, inputs in MEANT_FOR.items():
        for option in given_options([parameter]):
            if compared not in inputs:
                raise UsageError(
                    f"{option} is for {' and '.join(inputs)}, not for {compared}",
                    f"leave out {option}",
                )


def _snapshots(words: Sequence[str]) -> list[list[str]]:
    """The snapshots of each side; none if these are runs. UsageError if only one side has any."""
    sides = [archives_in(name) or [name] * is_archive(name) for name in words]
    if len(sides) == 2 and all(sides):
        return sides
    for name, files, other in zip(words, sides, reversed(words), strict=True):
        if files and len(words) == 2:
            if not Path(other).exists():
                raise UsageError(f"{other}: no such file or folder", MADE_BY)
            raise UsageError(
                f"{name} has snapshots of machines, {other} has none",
                "name snapshots, or folders of them, on both sides",
            )
    return []


def _compare_snapshots(
    words: Sequence[str],
    sides: Sequence[Sequence[str]],
    format_name: str,
    expect: str,
    fail_on: Verdict,
) -> int:
    # takes 0.1 s to import
    from busbw.check import changes_text, junit
    from busbw.check.changes import Side, changes
    from busbw.check.cluster import recorded_findings
    from busbw.check.expect.file import unused_mutes
    from busbw.check.registry import CHECKS, OF_MACHINE
    from busbw.cli.checks.expect import load_expected

    if format_name not in OF_SNAPSHOTS:
        raise UsageError(
            f"--format {format_name}: snapshots are compared as {', '.join(OF_SNAPSHOTS)}",
            "--format json is for programs",
        )
    for name in words:
        note_unread(name)
    expected = load_expected(expect, OF_MACHINE, node=False)
    before, after = (
        Side(name, *recorded_findings(files, CHECKS, expected))
        for name, files in zip(words, sides, strict=True)
    )
    if expected:
        reports = [node.report for side in (before, after) for node in side.snapshots.values()]
        for text in unused_mutes(expected, reports, fleet=True):
            print_err(f"warning: {text}")
    report = changes(before, after)
    if format_name == "json":
        print_json(report)
    elif format_name == "junit":
        print_out(junit.changes(report, fail_on))
    else:
        print_out(changes_text.text(report, width(), expect))
    return int(exit_of(report.verdicts(), fail_on))


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
    return [
        (file, comparable(result_in(read_bytes(file), file, collective, table), file))
        for file in files
    ]
