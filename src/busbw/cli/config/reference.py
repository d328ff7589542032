"""The reference curves in force: published ones, and those of the setting `reference`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from busbw.cli.streams import print_err
from busbw.core.errors import BusbwError
from busbw.core.settings import OFF
from busbw.reference.place import VARIABLE, own_file

if TYPE_CHECKING:
    from busbw.model.reference.curves import Reference


def reference_file() -> Path | None:
    """The user's own table of curves, by the setting `reference`; None where that is false."""
    if click.get_current_context(silent=True) is None:
        return own_file(os.environ)
    from busbw.cli.config.settings import in_force

    setting = in_force().values.get("reference")
    if setting is None:
        return own_file(os.environ)
    return own_file({**os.environ, VARIABLE: setting.text or OFF[0]})


def known_curves(file: Path | None = None) -> "Reference":
    """Published curves and the user's own, of `file` or the setting; UsageError for a bad file."""
    from busbw.reference import own_table

    return own_table.known_curves(file or reference_file())


def known_or_published(file: Path | None = None) -> "Reference":
    """As `known_curves`, but for a bad file a warning and the published curves alone.

    It is for use after a measurement, whose result must not be lost.
    """
    from busbw.model.reference.curves import built_in

    try:
        return known_curves(file)
    except BusbwError as error:
        print_err(f"warning: {error.message}; only published runs are compared with")
        return built_in()
