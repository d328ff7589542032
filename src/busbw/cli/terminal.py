"""How wide the output is, and whether it has colors."""

import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

import click

from busbw.launch.environment import detect

COLUMNS = 80  # of output to a pipe or a file, so that it fits everywhere
HELP = (
    "Print all columns, and lines of any length. Otherwise output fits the terminal, or 80 columns."
)

COLOR = "--color"
COLOR_HELP = (
    "color verdicts; auto: on a terminal, unless NO_COLOR is set or TERM=dumb  [default: auto]"
)

_WIDE, _COLOR = "busbw.wide", "busbw.color"  # in the meta of click's contexts


def is_terminal() -> bool:
    """Whether a person watches stdout.

    False for ranks of an outer launcher: mpirun gives each a terminal of its own, and may write
    what it reads there to a file.
    """
    return sys.stdout is not None and sys.stdout.isatty() and not detect(os.environ)


def takes_escapes() -> bool:
    """Whether the terminal that TERM names obeys escape sequences."""
    return os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def has_colors() -> bool:
    """Whether stdout shows colors: as --color says, else on a terminal, unless NO_COLOR is set
    (no-color.org).
    """
    context = click.get_current_context(silent=True)
    chosen = context.meta.get(_COLOR, "auto") if context is not None else "auto"
    if chosen != "auto":
        return bool(chosen == "always")
    return is_terminal() and takes_escapes() and not os.environ.get("NO_COLOR")


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
    """Give a command and its subcommands --wide."""
    remember = _remember(_WIDE)
    _add(command, ["--wide"], is_flag=True, expose_value=False, help=HELP, callback=remember)


def add_color(command: click.Command) -> None:
    """Give a command and its subcommands --color."""
    _add(command, [COLOR], **_color_attributes())


def color_option(function: Any) -> Any:
    """Give a command --color, in its place among its options."""
    return click.option(COLOR, **_color_attributes())(function)


def _color_attributes() -> dict[str, Any]:
    return {
        "type": click.Choice(("auto", "always", "never")),
        "expose_value": False,
        "help": COLOR_HELP,
        "callback": _remember(_COLOR),
    }


def _add(command: click.Command, names: list[str], **attributes: Any) -> None:
    taken = {name for parameter in command.params for name in parameter.opts}
    if taken.isdisjoint(names):
        command.params.append(click.Option(names, **attributes))
    subcommands = command.commands.values() if isinstance(command, click.Group) else ()
    for subcommand in subcommands:
        _add(subcommand, names, **attributes)


def _remember(key: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """A callback that keeps the value for the functions of this module."""

    def remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value:
            context.meta[key] = value

    return remember
