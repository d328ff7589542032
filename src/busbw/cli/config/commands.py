"""Adds --config, and settings as defaults of their options, to the commands that have such options.

Where there is no file and no variable with settings, nothing that reads them is imported.
"""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from busbw.cli.config.option import META, OPTION, ORIGINS, config_option
from busbw.core.errors import BusbwError
from busbw.core.settings import CONFIG_VARIABLE, PRINTS_ALL, SETTINGS, places, settings_of

VARIABLES = (CONFIG_VARIABLE, *(row.variable for row in SETTINGS))


def add_config(command: click.Command, path: str) -> None:
    """Make settings the defaults of a command's options, and of its subcommands'. `path` is its
    name: `check launch`. A second time changes nothing.
    """
    taken = {name for parameter in command.params for name in parameter.opts}
    if OPTION not in taken and (settings_of(path) or path == PRINTS_ALL):
        config_option(command)
        if command.callback is not None:
            command.callback = _with_settings(command.callback, path)
    if isinstance(command, click.Group):
        for name, subcommand in command.commands.items():
            add_config(subcommand, f"{path} {name}")


def _with_settings(run: Callable[..., Any], path: str) -> Callable[..., Any]:
    @wraps(run)
    def configured(*arguments: Any, **options: Any) -> Any:
        context = click.get_current_context()
        if not context.invoked_subcommand and not options.get("node") and _any(context):
            from busbw.cli.config.defaults import take_settings

            options |= take_settings(context, path)
        try:
            return run(*arguments, **options)
        except BusbwError as error:
            for option, origin in context.meta.get(ORIGINS, {}).items():
                if option in error.message.replace(":", " ").split():
                    error.add(f" ({option} is from {origin})")
            raise

    return configured


def _any(context: click.Context) -> bool:
    """Whether there is any file or variable to read."""
    if META in context.meta or any(os.environ.get(name) for name in VARIABLES):
        return True
    return any(os.path.lexists(place) for place in places(os.environ))
