"""`busbw show FILE...`: prints any file that busbw writes or reads: measurements, checks, tests of
links, plans, snapshots, what applications sent, and benchmarks of transfers.
"""

from pathlib import Path

import click
import msgspec

from busbw.api.files import is_log_of_failure, several
from busbw.cli.file_kinds import compared_with, load, system_option, table_option
from busbw.cli.options import shared
from busbw.cli.options.parameters import COUNT, File, given_options, not_empty
from busbw.cli.output import exit_code
from busbw.cli.pattern_output import FORMATS, PATTERN_CSV, PatternSelection, pattern_text
from busbw.cli.stored_runs import TakesRuns
from busbw.cli.streams import print_out
from busbw.cli.terminal import width
from busbw.core import json_codec
from busbw.core.errors import Exit, UsageError
from busbw.core.pattern import Pattern
from busbw.core.result import Outcome
from busbw.core.written_file import target_of
from busbw.measure.record import save
from busbw.pattern.registry import BY_NAME, RECORD
from busbw.pattern.replay.text import ROWS
from busbw.report.file_kinds import FileContent
from busbw.report.registry import VIEWS, render, view

FORMATS_OF_PATTERNS = [name for name in FORMATS if name not in {row.name for row in VIEWS}]
OF_PATTERNS = ("rows", "calls", "source")


@click.command("show", cls=TakesRuns, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--format",
    "format_name",
    default="table",
    show_default=True,
    help=f"output on stdout: {', '.join(row.name for row in VIEWS)}; of patterns:"
    f" {', '.join(FORMATS)}",
)
@table_option
@click.option(
    "--collective",
    default=None,
    callback=not_empty,
    help="the collective of a log that does not name it",
)
@click.option(
    "--input-format",
    "source",
    default=None,
    callback=not_empty,
    help=f"of patterns: the files' format: {', '.join((*BY_NAME, RECORD))}  [default: by content]",
)
@click.option(
    "--rows",
    type=COUNT,
    default=ROWS,
    show_default=True,
    help="of patterns: rows of the table, those with the largest share first",
)
@click.option(
    "--calls", is_flag=True, help="of pattern-csv: a column with how often a rank made each call"
)
@click.option(
    "--ran",
    is_flag=True,
    help="of sweeps and replays: what NCCL ran (algorithm, protocol, channels) and how ranks are"
    " connected, where it is known",
)
@system_option
@click.option("--output", type=File(written=True), help="write to this file, not to stdout")
def command(
    files: tuple[str, ...],
    format_name: str,
    collective: str | None,
    table: int | None,
    source: str | None,
    rows: int,
    calls: bool,
    ran: bool,
    system: str | None,
    output: Path | None,
) -> int:
    """Print what is in FILE (- = stdin): any file that busbw wrote, nccl-tests' JSON or text of any
    age, what an application wrote of its communication, or the output of NIXL's nixlbench or UCX's
    ucx_perftest. -1 is the last run of the history, -2
    the one before, run:12 the one with id 12.

    Several files, or a directory, hold the ranks of one job: NCCL's log, the JSON of NCCL's
    Inspector, dumps of PyTorch's Flight Recorder, traces of torch.profiler, clog, Chakra, SimAI,
    AIBooster's pattern.csv, and captures of busbw; also compressed with gzip. A snapshot or a
    kernel log is printed as its checks, and a folder of snapshots as those of all nodes. Of a
    job's log it says why NCCL failed, or whom the ranks waited for in a collective that timed out
    in PyTorch.
    """
    if calls and format_name != PATTERN_CSV:
        raise UsageError(
            f"--calls adds a column to {PATTERN_CSV}, not to {format_name}",
            f"add --format {PATTERN_CSV}, or leave out --calls",
        )
    if ran:
        shared.refuse_ran(format_name)
    if format_name not in FORMATS_OF_PATTERNS:
        view(format_name)
    _refuse_overwriting(output, files)
    name = files[0]
    content: Outcome | FileContent
    if source or len(files) > 1 or Path(name).is_dir():
        content = several(files, source)
    else:
        content = load(name, collective, table)
    if system is not None:
        content = compared_with(content, system, name)
    if isinstance(content, FileContent) and isinstance(content.held, Pattern):
        record = content.held
        _write(
            pattern_text(record, format_name, PatternSelection(rows=rows, calls=calls), name),
            output,
        )
        return int(Exit.BAD if record.header.skipped else Exit.OK)
    _refuse_options_of_patterns(name, format_name)
    if isinstance(content, FileContent):
        _write(_document_text(content, format_name, name, output), output)
        return int(Exit.BAD if is_log_of_failure(content) else Exit.OK)
    columns = None if output else width()
    _write(render(content, format_name, name, columns, ran=ran), output)
    return exit_code(content)


def _refuse_options_of_patterns(name: str, format_name: str) -> None:
    if format_name in FORMATS_OF_PATTERNS:
        raise UsageError(
            f"{name}: no pattern of an application, and --format {format_name} is for patterns",
            "use --format table, or json",
        )
    if options := ", ".join(given_options(OF_PATTERNS)):
        raise UsageError(
            f"{options}: {name} is no pattern of an application", f"leave out {options}"
        )


def _document_text(document: FileContent, format_name: str, name: str, output: Path | None) -> str:
    if format_name == "table":
        return document.text(None if output else width())
    if format_name == "json" and isinstance(document.held, msgspec.Struct):
        return json_codec.indented(document.held)
    raise UsageError(
        f"{name}: {document.title.lower()}, but '{format_name}' shows sweeps",
        "use --format table, or json",
    )


def _refuse_overwriting(output: Path | None, files: tuple[str, ...]) -> None:
    if output is None or not output.exists():
        return
    for file in files:
        if file != "-" and Path(file).exists() and output.samefile(file):
            raise UsageError(
                f"{output}: would overwrite what is read", "name another file with --output"
            )


def _write(text: str | bytes, output: Path | None) -> None:
    if output is None:
        print_out(text)
        return
    data = text.encode() if isinstance(text, str) else text
    try:
        if output.exists() and not output.is_file():  # a pipe or a device
            target_of(output)  # no link of a stranger leads to it
            output.write_bytes(data)
        else:
            save(data, output, "name a file that can be written")
    except OSError as error:
        raise UsageError(
            f"{output}: {error.strerror}", "name a file that can be written"
        ) from error
