"""`--config FILE`, before the command or after it; the last one counts."""

from typing import Any

import click

META = "busbw.config"  # the file of --config, in the meta of click's contexts
OPTION = "--config"
HELP = "take settings from this file, not from ./busbw.toml and ~/.config/busbw/busbw.toml"


def config_option(function: Any) -> Any:
    """Add --config to a command, or to the function of one."""
    option = click.option(OPTION, metavar="FILE", expose_value=False, callback=_remember, help=HELP)
    return option(function)


def _remember(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta[META] = value
