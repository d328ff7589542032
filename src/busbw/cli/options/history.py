"""Options that the commands of `busbw history` share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import msgspec

from busbw.cli.config.history import history_environment
from busbw.cli.options.parameters import File, not_empty
from busbw.core.errors import UsageError
from busbw.history.place import history_file

HELP = {"help_option_names": ["-h", "--help"]}


def db_option(function: Callable[..., Any]) -> Callable[..., Any]:
    help_text = (
        "the history's file  [default: the setting `history`, or busbw/history.sqlite under"
        " $XDG_DATA_HOME or ~/.local/share]"
    )
    option = click.option(
        "--db", type=File(), default=lambda: history_file(history_environment()), help=help_text
    )
    return option(function)


def filters(function: Callable[..., Any]) -> Callable[..., Any]:
    machine = click.option(
        "--machine", default="", callback=not_empty, help="only machines with this in their name"
    )
    collective = click.option(
        "--collective", default="", callback=not_empty, help="only runs of this collective"
    )
    return machine(collective(function))


@contextmanager
def naming_run(run: int) -> Iterator[None]:
    """Errors of reading a stored result become a UsageError that names the run."""
    try:
        yield
    except (UsageError, msgspec.DecodeError) as error:
        raise UsageError(
            f"run {run} is stored with an error: {error}",
            f"restore a backup, or remove it: busbw history rm {run}",
        ) from error
