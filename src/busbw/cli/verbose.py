"""`-v` of every command: what busbw decides on all ranks and why, on stderr."""

import os
from functools import partial

import click

from busbw.core.settings import LOG_LEVELS, LOG_VARIABLE

HELP = (
    "Write to stderr what busbw decides and why, on all ranks. Also by"
    f" {LOG_VARIABLE}={'|'.join(LOG_LEVELS)}."
)


def add_verbose(command: click.Command) -> None:
    """Give a command and its subcommands -v, unless it has an option of that name already."""
    taken = {name for parameter in command.params for name in parameter.opts}
    names = [name for name in ("-v", "--verbose") if name not in taken]
    if "--verbose" in names:
        option = click.Option(
            names, is_flag=True, expose_value=False, help=HELP, callback=_switch_on
        )
        command.params.append(option)
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            add_verbose(subcommand)


def _switch_on(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if not value or context.resilient_parsing:
        return
    from busbw.core import log

    context.call_on_close(partial(_switch_back, os.environ.get(LOG_VARIABLE)))
    os.environ[LOG_VARIABLE] = LOG_LEVELS[0]  # for the ranks that this process starts
    log.from_environment()


def _switch_back(before: str | None) -> None:
    """After the command, of which a program may call several."""
    from busbw.core import log

    if before:
        os.environ[LOG_VARIABLE] = before
        return
    os.environ.pop(LOG_VARIABLE, None)
    log.switch_off()
