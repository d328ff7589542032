"""`--config FILE`, before the command or after it; the last one counts."""

from typing import Any

import click

from busbw.core.errors import UsageError

META = "busbw.config"  # the file of --config, in the meta of click's contexts
ORIGINS = "busbw.origins"  # there too: where each option comes from that a setting gave
OPTION = "--config"
HELP = "take settings from this file, not from ./busbw.toml and ~/.config/busbw/busbw.toml"


def config_option(function: Any) -> Any:
    """Add --config to a command, or to the function of one."""
    option = click.option(OPTION, metavar="FILE", expose_value=False, callback=_remember, help=HELP)
    return option(function)


def _remember(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value == "":
        raise UsageError(
            f"{OPTION} '': it is empty", f"give it a file, or {OPTION} /dev/null for no settings"
        )
    if value is not None:
        context.meta[META] = value
