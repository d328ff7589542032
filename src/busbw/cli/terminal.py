"""How wide the output is, and whether it has colors."""

import os
import shutil
import sys

import click

from busbw.launch.environment import detect

COLUMNS = 80  # of output to a pipe or a file, so that it fits everywhere
HELP = (
    "Print all columns, and lines of any length. Otherwise output fits the terminal, or 80 columns."
)

_WIDE = "busbw.wide"


def is_terminal() -> bool:
    """Whether a person watches stdout.

    False for ranks of an outer launcher: mpirun gives each a terminal of its own, and may write
    what it reads there to a file.
    """
    return sys.stdout is not None and sys.stdout.isatty() and not detect(os.environ)


def width() -> int | None:
    """Columns to fit: COLUMNS, else the terminal's, 80 for a pipe or file; None with --wide."""
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(_WIDE):
        return None
    if is_terminal():
        return shutil.get_terminal_size().columns
    chosen = os.environ.get("COLUMNS", "")
    return int(chosen) if chosen.isdecimal() and int(chosen) > 0 else COLUMNS


def height() -> int | None:
    """Lines of the terminal; None for a pipe or a file."""
    return shutil.get_terminal_size().lines if is_terminal() else None


def add_wide(command: click.Command) -> None:
    if all("--wide" not in parameter.opts for parameter in command.params):
        option = click.Option(
            ["--wide"], is_flag=True, expose_value=False, help=HELP, callback=_remember
        )
        command.params.append(option)
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            add_wide(subcommand)


def _remember(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.meta[_WIDE] = True
