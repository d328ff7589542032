"""`-v` of every command: what busbw decides on all ranks and why, on stderr."""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from busbw.core import log

HELP = (
    "Write to stderr what busbw decides and why, on all ranks. Also by"
    f" {log.VARIABLE}={'|'.join(log.LEVELS)}."
)

_ASKED = "busbw.verbose"


def add_verbose(command: click.Command) -> None:
    """Give a command and its subcommands -v, unless it has an option of that name already."""
    taken = {name for parameter in command.params for name in parameter.opts}
    names = [name for name in ("-v", "--verbose") if name not in taken]
    if "--verbose" in names:
        option = click.Option(
            names, is_flag=True, expose_value=False, help=HELP, callback=_remember
        )
        command.params.append(option)
        if command.callback is not None:
            command.callback = _logged(command.callback)
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            add_verbose(subcommand)


def _remember(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.meta[_ASKED] = True  # the log is switched on when the command runs


def _logged(run: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a command, with the log on if it was asked for."""

    @wraps(run)
    def logged(*arguments: Any, **options: Any) -> Any:
        if click.get_current_context().meta.get(_ASKED):
            os.environ[log.VARIABLE] = log.LEVELS[0]  # for the ranks that this process starts
            log.from_environment()
        return run(*arguments, **options)

    return logged
