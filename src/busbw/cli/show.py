"""`busbw show FILE`: prints any file that busbw writes or reads: measurements, checks, tests of
links, plans, snapshots and patterns.
"""

import click
import msgspec

from busbw.cli.file_kinds import load, table_option
from busbw.cli.options.parameters import not_empty
from busbw.cli.output import exit_code
from busbw.cli.stored_runs import TakesRuns
from busbw.cli.streams import answer
from busbw.cli.terminal import width
from busbw.core import json_codec
from busbw.core.errors import Exit, UsageError
from busbw.report.file_kinds import Document
from busbw.report.registry import VIEWS, render, view


@click.command("show", cls=TakesRuns, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file")
@click.option(
    "--format",
    "format_name",
    default="table",
    show_default=True,
    help=", ".join(row.name for row in VIEWS),
)
@table_option
@click.option(
    "--collective",
    default=None,
    callback=not_empty,
    help="the collective of a log that does not name it",
)
def command(file: str, format_name: str, collective: str | None, table: int | None) -> int:
    """Print what is in FILE (- = stdin): any file that busbw wrote, or nccl-tests' JSON or text of
    any age. -1 is the last run of the history, -2 the one before, run:12 the one with id 12.

    Other files than sweeps have the formats table and json. A snapshot is printed as its checks, a
    log or trace of an application as its pattern. Exit code 1 when the result holds wrong data; 3
    with --format brief when no cell reached its precision.
    """
    view(format_name)
    content = load(file, collective, table)
    if isinstance(content, Document):
        answer(_text(content, format_name, file))
        return int(Exit.OK)
    answer(render(content, format_name, file, width()))
    return exit_code(content, format_name)


def _text(document: Document, format_name: str, file: str) -> str:
    if format_name == "table":
        return document.text(width())
    if format_name == "json" and document.held is not None:
        return msgspec.json.format(json_codec.encode(document.held), indent=2).decode() + "\n"
    hint = "use --format table, or json"
    if document.held is None:
        hint = f"busbw pattern {file} --format jsonl"
    raise UsageError(f"{file}: {document.title.lower()}, but '{format_name}' shows sweeps", hint)
