"""Options of `busbw manifest` that hold the words of another busbw command."""

import os
import sys
from pathlib import Path

import click
from click.core import ParameterSource

from busbw.cli.check import command as check_command
from busbw.cli.options.parameters import Seconds, shell_words
from busbw.core.errors import UsageError

# Parameters of `busbw check` with which it does something else than judge the machine that it runs
# on, or does not say so by the exit code and a line for each fault.
_NOT_OF_A_NODE = (
    *("files", "hosts", "hostfile", "save", "force", "learn", "accept_faults", "listed"),
    *("differences", "node", "brief", "format_name", "output"),
)


def parse_check(text: str) -> list[str]:
    """Options of `busbw check`; UsageError if its exit code would not judge this machine."""
    without_subcommands = click.Command("check", params=check_command.params, add_help_option=False)
    words, context = _parsed("--check-options", without_subcommands, text)
    for parameter in without_subcommands.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in _NOT_OF_A_NODE and source is ParameterSource.COMMANDLINE:
            option = max(parameter.opts, key=len)
            raise UsageError(
                f"--check-options '{text}': with {option} busbw check does not judge the node that"
                " it runs on by its exit code",
                f"leave out {option}",
            )
    return words


def parse(option: str, command: click.Command, text: str) -> list[str]:
    """Words that `busbw COMMAND` accepts; UsageError for others, which would protect no job."""
    return _parsed(option, command, text)[0] if text.strip() else []


def _parsed(option: str, command: click.Command, text: str) -> tuple[list[str], click.Context]:
    words = shell_words(option, text)
    try:
        context = command.make_context(command.name, list(words))
    except click.ClickException as error:
        raise UsageError(
            f"{option} '{text}': {error.format_message()}", f"busbw {command.name} --help"
        ) from error
    return words, context


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
