"""`busbw show FILE`: any result again, in any format."""

import sys
from pathlib import Path

import click

from busbw.cli.parameters import not_empty
from busbw.cli.streams import answer, talk
from busbw.cli.terminal import width
from busbw.core.errors import UsageError
from busbw.core.exits import Exit
from busbw.core.finding import LOG_TABLES
from busbw.core.result import Result
from busbw.views.read import read
from busbw.views.registry import VIEWS, kind, render, view

table_option = click.option("--table", type=click.IntRange(1), default=None, help="which table of a log that holds several, from 1 on")


@click.command("show", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file")
@click.option("--format", "format_name", default="table", show_default=True, help=", ".join(v.name for v in VIEWS))
@table_option
@click.option("--collective", default=None, callback=not_empty, help="the collective of a log that does not name it")
def command(file: str, format_name: str, collective: str | None, table: int | None) -> int:
    """Print the result in FILE (- = stdin): busbw.result/1, or nccl-tests' JSON or text of any age.

    Exit code 1 when the result holds wrong data.
    """
    view(format_name)
    result = read(read_bytes(file), file, collective, table)
    answer(render(result, format_name, file, width()))
    return int(Exit.BAD if result.wrong() else Exit.OK)


def read_sweep(file: str, collective: str | None, table: int | None = None) -> Result:
    """The sweep in a file, with a warning where its log holds several; UsageError for a training or a plan, which have no sizes."""
    return sweep_in(read_bytes(file), file, collective, table)


def sweep_in(data: bytes, file: str, collective: str | None, table: int | None = None) -> Result:
    """As `read_sweep`, of what was read from the file."""
    result = read(data, file, collective, table)
    if not isinstance(result, Result):
        raise UsageError(f"{file} is {kind(result)}, not a sweep", f"busbw show {file}")
    for finding in result.findings:
        if finding.id == LOG_TABLES:
            talk(f"warning: {file}: {finding.message}; {finding.fix}")
    return result


def read_bytes(file: str) -> bytes:
    """What is in the file, or on stdin for `-`; UsageError where it cannot be read."""
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", "name a result file, or - for stdin") from error
