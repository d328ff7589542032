"""`busbw check config`: each setting, its value, and where it comes from."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

import click

from busbw.cli.config.settings import Settings, in_force
from busbw.cli.options.shared import format_option
from busbw.cli.streams import print_err, print_json, print_out
from busbw.cli.terminal import width
from busbw.core.env import VARIABLES
from busbw.core.errors import Exit, UsageError
from busbw.core.masking import masked_value
from busbw.core.settings import OFF, SETTINGS
from busbw.model.systems import parse_system, with_nics
from busbw.ui.columns import Column, aligned

UNSET, DEFAULT = "-", "default"
LEAST_WIDTH = 20  # of a value that is cut to fit the terminal
CLOSE = 0.85  # how alike a misspelt variable and its setting are
ANY_SYSTEM = "h100x8"


@dataclass(frozen=True, slots=True)
class SettingLine:
    """A setting as it is shown; `value` is None where nothing sets it."""

    setting: str
    value: str | None
    origin: str


@click.command("config", context_settings={"help_option_names": ["-h", "--help"]})
@format_option
def command(format_name: str) -> int:
    """Print every setting, its value, and where it comes from: a variable, a file with the line, or
    the default.

    Settings are defaults of options, which come first. Then come variables such as BUSBW_HOSTS,
    ./busbw.toml, and busbw/busbw.toml under $XDG_CONFIG_HOME or ~/.config. --config FILE takes the
    place of both files. Exit code 2 if a file or a value is wrong.
    """
    settings = in_force()
    _check_system(settings)
    lines = _lines(settings)
    if format_name == "json":
        document = {"settings": lines, "files": settings.files}
        print_json(document)
    else:
        print_out(_table(lines, width()) + "\n" + _files(settings))
    for name in _misspelt(os.environ):
        print_err(name)
    return int(Exit.OK)


def _lines(settings: Settings) -> list[SettingLine]:
    lines = []
    for row in SETTINGS:
        value = settings.values.get(row.key)
        if value is None:
            lines.append(SettingLine(row.key, None, DEFAULT))
        else:
            text = masked_value(row.variable, value.text) if value.text else OFF[0]
            lines.append(SettingLine(row.key, text, value.origin))
    return lines


def _table(lines: list[SettingLine], limit: int | None) -> str:
    """The lines as a table; values are cut to fit `limit` columns."""
    room = None
    if limit is not None:
        others = max(len(line.setting) for line in lines) + max(len(line.origin) for line in lines)
        room = max(limit - others - 4, LEAST_WIDTH)
    columns = [
        Column(title="setting", value=lambda line: line.setting, left=True),
        Column(title="from", value=lambda line: line.origin, left=True),
        Column(title="value", value=lambda line: _cut(line.value or UNSET, room), left=True),
    ]
    return aligned(columns, lines)


def _cut(text: str, room: int | None) -> str:
    return text if room is None or len(text) <= room else f"{text[: room - 3]}..."


def _files(settings: Settings) -> str:
    widest = max(map(len, settings.files))
    lines = [
        f"{name.ljust(widest)}  {'read' if there else 'not there'}\n"
        for name, there in settings.files.items()
    ]
    return "".join(lines)


def _check_system(settings: Settings) -> None:
    """UsageError for a system or NICs that no command could predict for."""
    system, nics = settings.values.get("system"), settings.values.get("nics")
    try:
        described = parse_system(system.text if system else ANY_SYSTEM)
    except UsageError as error:
        raise UsageError(
            f"{system.origin if system else ''}: {error.message}", error.hint
        ) from error
    if nics is None:
        return
    try:
        with_nics(described, nics.text)
    except UsageError as error:
        raise UsageError(f"{nics.origin}: {error.message}", error.hint) from error


def _misspelt(environment: Iterable[str]) -> list[str]:
    """A note for each variable that is nearly the name of one that busbw reads."""
    known = [row.name for row in VARIABLES]
    notes = []
    for name in sorted(environment):
        if name.startswith("BUSBW_") and name not in known:
            close = get_close_matches(name, known, n=1, cutoff=CLOSE)
            if close:
                notes.append(f"note: busbw does not read {name}; did you mean {close[0]}?")
    return notes
