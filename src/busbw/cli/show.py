"""`busbw show FILE`: any result again, in any format."""

import sys
from pathlib import Path

import click

from busbw.cli.parameters import not_empty
from busbw.cli.streams import answer
from busbw.core.errors import UsageError
from busbw.core.exits import Exit
from busbw.core.result import Result
from busbw.views.read import read
from busbw.views.registry import VIEWS, kind, render, view


@click.command("show", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file")
@click.option("--format", "format_name", default="table", show_default=True, help=", ".join(v.name for v in VIEWS))
@click.option("--collective", default=None, callback=not_empty, help="the collective of a log that does not name it")
def command(file: str, format_name: str, collective: str | None) -> int:
    """Print the result in FILE (- = stdin): busbw.result/1, or nccl-tests' JSON or text of any age.

    Exit code 1 when the result holds wrong data.
    """
    view(format_name)
    result = read(read_bytes(file), file, collective)
    answer(render(result, format_name, file))
    return int(Exit.BAD if result.wrong() else Exit.OK)


def read_sweep(file: str, collective: str | None) -> Result:
    """The sweep in a file; UsageError for a training or a plan, which have no sizes to compare."""
    result = read(read_bytes(file), file, collective)
    if not isinstance(result, Result):
        raise UsageError(f"{file} is {kind(result)}, and this is for sweeps", f"busbw show {file}")
    return result


def read_bytes(file: str) -> bytes:
    """What is in the file, or on stdin for `-`; UsageError where it cannot be read."""
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", "name a result file, or - for stdin") from error
