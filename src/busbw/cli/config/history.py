"""The setting `history`, for the package history, which knows only variables."""

import os
from collections.abc import Mapping

import click

from busbw.core.settings import OFF
from busbw.history.place import VARIABLE


def history_environment() -> Mapping[str, str]:
    """The environment, with BUSBW_HISTORY as the settings in force have it."""
    if click.get_current_context(silent=True) is None:
        return os.environ
    from busbw.cli.config.settings import in_force

    setting = in_force().values.get("history")
    if setting is None:
        return os.environ
    return {**os.environ, VARIABLE: setting.text or OFF[0]}
