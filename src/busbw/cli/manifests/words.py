"""Options of `busbw manifest` that hold the words of another busbw command."""

import os
import sys
from pathlib import Path

import click

from busbw.cli.check import command as check_command
from busbw.cli.options.parameters import Seconds, shell_words
from busbw.core.errors import UsageError

# With these the exit code or the output is not that of the checks of this machine.
_OTHER_OUTPUT = ("--nagios", "--list")


def parse_check(text: str) -> list[str]:
    """Options of `busbw check`; UsageError if its exit code would not judge this machine."""
    words = parse("--check-options", check_command, text)
    other = next((word for word in words if word in _OTHER_OUTPUT), None)
    if other:
        raise UsageError(
            f"--check-options '{text}': with {other} the exit code is not that of busbw check",
            f"leave out {other}",
        )
    return words


def parse(option: str, command: click.Command, text: str) -> list[str]:
    """Words that `busbw COMMAND` accepts; UsageError for others, which would protect no job."""
    words = shell_words(option, text)
    try:
        if words:
            command.make_context(command.name, list(words))
    except click.ClickException as error:
        raise UsageError(
            f"{option} '{text}': {error.format_message()}", f"busbw {command.name} --help"
        ) from error
    return words


def _this_program() -> str:
    """The path of this busbw: of what was started, or beside the Python that runs it."""
    started = Path(sys.argv[0]).absolute()
    if started.suffix != ".py" and started.is_file() and os.access(started, os.X_OK):
        return str(started)
    return str(Path(sys.executable).absolute().with_name("busbw"))


every_option = click.option(
    "--every",
    "every_s",
    type=Seconds(least=60, whole=True),
    default=300,
    show_default=True,
    help="seconds between two checks",
)
program_option = click.option(
    "--program",
    metavar="FILE",
    default="",
    callback=lambda _context, _parameter, file: file or _this_program(),
    help="busbw on the host  [default: this busbw]",
)
