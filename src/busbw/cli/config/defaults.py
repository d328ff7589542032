"""Settings as the defaults of a command's options. A setting is not what the user asks for on this
command line: where it contradicts an option, it is left out, and -v says so.
"""

import logging
import os
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource

from busbw.cli.config.option import ORIGINS
from busbw.cli.config.settings import Value, in_force
from busbw.cli.options.parameters import SETTINGS_ARGV
from busbw.core.errors import BusbwError, UsageError
from busbw.core.settings import REPLACES, settings_of
from busbw.engines.registry import AUTO, choose_for, engine
from busbw.launch import environment

LOG = logging.getLogger(__name__)
SIM = "sim"
WHERE = ("hosts", "hostfile")
# Parameters that describe another place or purpose than hosts do: where one is given, the hosts of
# a setting are not meant.
_NOT_WITH_HOSTS = ("slurm", "files", "load_s", "since", "learn", "save")
# Formats of `busbw check` that hosts have; the others are of one machine.
_FORMATS_OF_HOSTS = ("table", "json", "junit")
_INSTEAD = {
    "hosts": _NOT_WITH_HOSTS,
    "hostfile": _NOT_WITH_HOSTS,
    "system": ("topo",),
    "nics": ("topo",),
}


def take_settings(context: click.Context, path: str) -> dict[str, Any]:
    """The values of the parameters that settings give, converted; the context has them, and their
    source, too. UsageError for a value that is none of the option's.
    """
    chosen = _Chosen(context, path, dict(in_force().values))
    chosen.leave_out()
    taken: dict[str, Any] = {}
    words: list[str] = []
    origins = context.meta.setdefault(ORIGINS, {})
    parameters = {parameter.name: parameter for parameter in context.command.params}
    for row in settings_of(path):
        value, parameter = chosen.values.get(row.key), parameters[row.parameter]
        if value is None:
            continue
        context.set_parameter_source(row.parameter, ParameterSource.DEFAULT_MAP)
        try:
            converted = parameter.process_value(context, value.text)
        except click.BadParameter as error:
            # One engine or format of several commands: this one does not have it.
            context.set_parameter_source(row.parameter, ParameterSource.DEFAULT)
            chosen.drop(row.key, error.message)
            continue
        except UsageError as error:
            raise UsageError(f"{value.origin}: {error.message}", error.hint) from error
        LOG.info("%s %s: from %s", row.option, value.text, value.origin)
        taken[row.parameter] = converted
        words += [row.option, value.text]
        origins[row.option] = value.origin
    context.params.update(taken)
    context.meta[SETTINGS_ARGV] = words
    return taken


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The values of settings, from which those are removed that do not apply to a command line."""

    context: click.Context
    path: str
    values: dict[str, Value]

    def leave_out(self) -> None:
        """Remove what the command line, or the launcher that started this rank, contradicts."""
        self._leave_out_given()
        self._leave_out_hosts()
        self._leave_out_engine()
        self._leave_out_net()
        self._leave_out_ideal()

    def drop(self, key: str, why: str) -> None:
        """Remove a value; -v says why."""
        value = self.values.pop(key, None)
        if value is not None:
            LOG.info("%s = %s of %s is left out: %s", key, value.text, value.origin, why)

    def given(self, parameter: str) -> bool:
        source = self.context.get_parameter_source(parameter)
        return source is ParameterSource.COMMANDLINE

    def engine(self) -> str:
        """The engine that the command line names, or else the setting."""
        if self.given("engine"):
            return str(self.context.params["engine"])
        return self.values["engine"].text if "engine" in self.values else AUTO

    def _leave_out_given(self) -> None:
        for row in settings_of(self.path):
            if not self.given(row.parameter):
                continue
            self.drop(row.key, f"{row.option} is given")
            for other in REPLACES.get(row.key, ()):
                self.drop(other, f"{row.option} is given")
        for key, parameters in _INSTEAD.items():
            for name in filter(self.given, parameters):
                self.drop(key, f"{_option(self.context, name)} is given")

    def _leave_out_hosts(self) -> None:
        why = ""
        if environment.detect(os.environ) is not None:
            why = "this process is a rank of a running job"
        elif self.path == "check" and self.context.params["format_name"] not in _FORMATS_OF_HOSTS:
            why = "--format is of one machine"
        elif self.given("engine") and self.engine() == SIM:
            why = "--engine sim starts no ranks on hosts"
        if why:
            for key in WHERE:
                self.drop(key, why)

    def _leave_out_engine(self) -> None:
        setting = self.values.get("engine")
        if setting is None:
            return
        is_sim = setting.text == SIM
        moves_through_nccl = setting.text == AUTO or engine(setting.text).nccl
        if is_sim and self._starts_ranks():
            self.drop("engine", "sim starts no ranks")
        elif not is_sim and self.given("simulation"):
            self.drop("engine", "only sim has parameters")
        elif not moves_through_nccl and self.given("net"):
            self.drop("engine", "--net is given")
        elif is_sim:
            for key in WHERE:
                self.drop(key, f"engine = {SIM} of {setting.origin} starts no ranks on hosts")

    def _starts_ranks(self) -> bool:
        """Whether ranks are processes of their own, whatever the engine."""
        is_rank = environment.detect(os.environ) is not None
        return is_rank or self.path == "link" or any(map(self.given, (*WHERE, "slurm")))

    def _leave_out_net(self) -> None:
        """A machine without GPUs may print the variables for one, but not use the network."""
        if "net" not in self.values or "engine" not in self.context.params:
            return
        if self.given("env_format"):
            return
        name = self.engine()
        elsewhere = any(key in self.values or self.given(key) for key in (*WHERE, "slurm"))
        try:
            row, _ = choose_for(name, elsewhere=elsewhere)
        except BusbwError:  # which the command reports
            return
        if row is not None and not row.nccl:
            self.drop("net", f"engine {row.name} moves no data through NCCL")

    def _leave_out_ideal(self) -> None:
        if self.engine() == SIM:
            self.drop("ideal", "engine sim has links of its own")


def _option(context: click.Context, name: str) -> str:
    """The option of a parameter as a user types it."""
    parameter = next(option for option in context.command.params if option.name == name)
    return max(parameter.opts, key=len)
