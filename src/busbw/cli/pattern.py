"""`busbw pattern FILE...`: what an application sent, from its logs, traces and dumps."""

from collections.abc import Callable
from pathlib import Path

import click

from busbw.cli.options.parameters import COUNT, not_empty
from busbw.cli.streams import answer, talk
from busbw.cli.terminal import width
from busbw.core.errors import Exit, UsageError
from busbw.core.pattern import Pattern
from busbw.core.pattern_weights import coverage
from busbw.core.sizes import counted
from busbw.measure.record import save
from busbw.pattern import csv, pattern_lines
from busbw.pattern import text as view
from busbw.pattern.registry import BY_NAME, RECORD, load
from busbw.pattern.replay.text import ROWS

FORMATS: dict[str, Callable[[Pattern, bool, int], str | bytes]] = {
    "table": lambda record, calls, rows: view.table(record, width(), rows),
    "csv": lambda record, calls, rows: csv.table_csv(record),
    "pattern-csv": lambda record, calls, rows: csv.pattern_csv(record, calls=calls),
    "jsonl": lambda record, calls, rows: b"".join(pattern_lines.lines(record)),
}


@click.command("pattern", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--from",
    "source",
    default=None,
    callback=not_empty,
    help=f"the format of the files: {', '.join((*BY_NAME, RECORD))}  [default: by content]",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(list(FORMATS)),
    default="table",
    show_default=True,
    help="how to print it",
)
@click.option(
    "--calls", is_flag=True, help="pattern-csv: add a column with how often a rank made each call"
)
@click.option(
    "--rows",
    type=COUNT,
    default=ROWS,
    show_default=True,
    help="rows of the table, those with the largest share first",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="write to this file, not to stdout",
)
def command(
    files: tuple[str, ...],
    source: str | None,
    format_name: str,
    calls: bool,
    rows: int,
    output: Path | None,
) -> int:
    """Print which collectives an application called, how often and how large.

    Each FILE (- = stdin) holds one rank or several of one job; a directory stands for its files.
    Reads NCCL's log, the JSON of NCCL's Inspector, dumps of PyTorch's Flight Recorder, traces of
    torch.profiler, clog, Chakra, SimAI, AIBooster's pattern.csv, and the record busbw.pattern/1;
    also compressed with gzip. Exit code 1 when a part could not be read, 2 when nothing could.
    """
    if calls and format_name != "pattern-csv":
        raise UsageError(
            f"--calls adds a column to pattern-csv, not to {format_name}",
            "add --format pattern-csv, or leave out --calls",
        )
    _refuse_overwriting(output, files)
    record = load(files, source)
    hidden = csv.left_out(record) if format_name == "pattern-csv" else 0
    if hidden:
        talk(f"note: {counted(hidden, 'row')} of send and recv left out: pattern.csv has none")
    _write(FORMATS[format_name](record, calls, rows), output, shared=format_name == "csv")
    if format_name != "table":
        for note in [*record.header.notes, *coverage(record)]:
            talk(f"note: {note}")
    return int(Exit.BAD if record.header.skipped else Exit.OK)


def _refuse_overwriting(output: Path | None, files: tuple[str, ...]) -> None:
    if output is None or not output.exists():
        return
    for file in files:
        if file != "-" and Path(file).exists() and output.samefile(file):
            raise UsageError(f"{output}: would overwrite what is read", "name another file with -o")


def _write(text: str | bytes, output: Path | None, *, shared: bool) -> None:
    if output is None:
        answer(text)
        return
    data = text.encode() if isinstance(text, str) else text
    try:
        if output.exists() and not output.is_file():  # a pipe or a device
            output.write_bytes(data)
        else:
            save(data, output, "name a file that can be written", shared=shared)
    except OSError as error:
        raise UsageError(
            f"{output}: {error.strerror}", "name a file that can be written"
        ) from error
