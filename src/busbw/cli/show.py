"""`busbw show FILE`: what busbw wrote, again, in any format."""

import click
import msgspec

from busbw.cli.file_kinds import load
from busbw.cli.output import exit_code
from busbw.cli.parameters import not_empty
from busbw.cli.streams import answer
from busbw.cli.sweep_files import table_option
from busbw.cli.terminal import width
from busbw.core import json_codec
from busbw.core.errors import UsageError
from busbw.core.exits import Exit
from busbw.report.file_kinds import Document
from busbw.report.registry import VIEWS, render, view


@click.command("show", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file")
@click.option(
    "--format",
    "format_name",
    default="table",
    show_default=True,
    help=", ".join(v.name for v in VIEWS),
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
    any age.

    Other files than sweeps have the formats table and json. A snapshot is printed as its checks, a
    log or trace of an application as its pattern. Exit code 1 when the result holds wrong data; 3
    with --format brief when no cell reached its precision.
    """
    view(format_name)
    found = load(file, collective, table)
    if isinstance(found, Document):
        answer(_text(found, format_name, file))
        return int(Exit.OK)
    answer(render(found, format_name, file, width()))
    return exit_code(found, format_name)


def _text(found: Document, format_name: str, file: str) -> str:
    if format_name == "table":
        return found.text(width())
    if format_name == "json" and found.held is not None:
        return msgspec.json.format(json_codec.encode(found.held), indent=2).decode() + "\n"
    usual = (
        "use --format table, or json"
        if found.held is not None
        else f"busbw pattern {file} --format jsonl"
    )
    raise UsageError(f"{file}: {found.title.lower()}, but '{format_name}' shows sweeps", usual)
