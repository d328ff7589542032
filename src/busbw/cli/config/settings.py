"""The settings in force: from variables, ./busbw.toml and the user's file, in this order."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from busbw.cli.config import values
from busbw.cli.config.files import ConfigFile, find, load, shown_path
from busbw.cli.config.option import META
from busbw.core.errors import UsageError, unknown
from busbw.core.settings import BY_KEY, CONFIG_VARIABLE, REPLACES, SETTINGS, places


@dataclass(frozen=True, slots=True)
class Value:
    """A value as its option takes it, '' for false, and where it comes from."""

    text: str
    origin: str


@dataclass(frozen=True, slots=True)
class Settings:
    """Values by key, and the files that were looked for, with whether they are there."""

    values: dict[str, Value] = field(default_factory=dict)
    files: dict[str, bool] = field(default_factory=dict)


def in_force() -> Settings:
    """The settings of this command line, with --config; UsageError for an unknown key or value."""
    return read(click.get_current_context().meta.get(META, ""), os.environ)


def read(named: str, environment: Mapping[str, str]) -> Settings:
    """The settings. `named` is the file of --config; '' for BUSBW_CONFIG, or the usual places."""
    settings = Settings()
    option = f"--config {named}" if named else ""
    from_variable = environment.get(CONFIG_VARIABLE, "")
    if named or from_variable:
        name = option or f"{CONFIG_VARIABLE}={from_variable}"
        files = [load(Path(named or from_variable), name)]
        settings.files[name] = True
    else:
        files = []
        for path in places(environment):
            file = find(path)
            settings.files[shown_path(path)] = file is not None
            if file:
                files.append(file)
    for file in reversed(files):
        _add(settings, _of_file(file), file.name)
    _add(settings, _of_environment(environment), "the environment")
    return settings


def _add(settings: Settings, layer: dict[str, Value], name: str) -> None:
    """Let the values of a closer place replace those of the others."""
    if "hosts" in layer and "hostfile" in layer:
        raise UsageError(f"{name}: hosts and hostfile both name the hosts", "leave out one of them")
    for key in layer:
        for replaced in REPLACES.get(key, ()):
            settings.values.pop(replaced, None)
    settings.values.update(layer)


def _of_file(file: ConfigFile) -> dict[str, Value]:
    layer = {}
    for key, value in file.values.items():
        where = file.where(key)
        row = BY_KEY.get(key)
        if row is None:
            raise _unknown(key, value, where)
        text = values.from_file(row, value, where, file.path.parent)
        layer[key] = Value(text, where)
    return layer


def _of_environment(environment: Mapping[str, str]) -> dict[str, Value]:
    """The values of variables. An empty one, often an unset one of a script, gives none."""
    layer = {}
    for row in SETTINGS:
        text = environment.get(row.variable, "").strip()
        if text:
            layer[row.key] = Value(values.from_variable(row, text), row.variable)
    return layer


def _unknown(key: str, value: object, where: str) -> UsageError:
    if isinstance(value, dict):
        return UsageError(
            f"{where}: [{key}]: settings stand in no table",
            f"write lines like: {SETTINGS[0].key} = {SETTINGS[0].example}",
        )
    return unknown("setting", key.replace("-", "_"), {name: name for name in BY_KEY}, f"{where}: ")
