"""`-v` of every command: what busbw decides and why, on stderr, of all ranks."""

import os

import click

from busbw.core import log

HELP = f"Write to stderr what busbw decides and why, on all ranks. Also by {log.VARIABLE}={'|'.join(log.LEVELS)}."


def add_verbose(command: click.Command) -> None:
    """Give a command and its subcommands -v, unless it has an option of that name already."""
    taken = {name for parameter in command.params for name in parameter.opts}
    names = [name for name in ("-v", "--verbose") if name not in taken]
    if "--verbose" in names:
        option = click.Option(names, is_flag=True, expose_value=False, help=HELP, callback=_switch_on)
        command.params.append(option)
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            add_verbose(subcommand)


def _switch_on(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        os.environ.setdefault(log.VARIABLE, log.LEVELS[0])  # for the ranks that this process starts
        log.from_environment()
