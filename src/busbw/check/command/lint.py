"""Finds faults in a command line: the rules, and the checks of NCCL's variables over those that the line gives."""

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from msgspec import structs

from busbw.check import command, nccl
from busbw.check.command.base import STAYS
from busbw.check.command.line import Line, parse
from busbw.check.launcher.programs import open_mpi
from busbw.check.machine import ENVIRONMENT, USER, Machine
from busbw.core.checking import Checked
from busbw.core.env import carried
from busbw.core.errors import UsageError
from busbw.host.source import Reading

_EXPORT = re.compile(r"\bexport ((?:[A-Z_]+=\S+ ?)+)")


class _WithVariables:
    """A Source: a machine with the line's variables in its environment. Without a machine nothing else can be read."""

    def __init__(self, machine: Machine | None, variables: dict[str, str]) -> None:
        self._machine = machine
        self._text = json.dumps({**((machine.environment or {}) if machine else {}), **variables})

    def read(self, path: str) -> Reading:
        return self._machine.read(path) if self._machine else Reading(None, f"{path}: no machine was read")

    def names(self, path: str) -> tuple[str, ...]:
        return self._machine.names(path) if self._machine else ()

    def link(self, path: str) -> str | None:
        return self._machine.link(path) if self._machine else None

    def call(self, name: str, live: Callable[[], str]) -> Reading:
        if name == ENVIRONMENT:
            return Reading(self._text.encode())
        return self._machine.call(name, live) if self._machine else Reading(None, "no machine was read")


def lint(argv: Sequence[str], machine: Machine | None = None) -> list[Checked]:
    """All findings on a line, those of rules first. `machine` adds its version of Open MPI, GPUs, ports and interfaces.

    The machine is taken as one of those that run the line. UsageError for an empty line.
    """
    if not argv:
        raise UsageError("no command line", "give it as you would start it: mpirun -n 16 -H h1:8,h2:8 ./build/all_reduce_perf")
    line = _facts(parse(argv), machine)
    variables = carried({name: value for name, value in line.variables if value is not None})
    ranks = Machine(_WithVariables(machine, variables))
    found = [one for rule in command.CHECKS for one in rule.on(line).run(ranks)]
    of_nccl = [one for check in nccl.CHECKS for one in check.run(ranks)]
    return found + [_on_line(one, variables, line) for one in of_nccl if _concerns(one, variables)]


def _facts(line: Line, machine: Machine | None) -> Line:
    if machine is None:
        return line
    found, user = open_mpi(machine), machine.call(USER, lambda: str(os.geteuid())).text
    return replace(
        line,
        major=found.major if found else 0,
        gpus=len(machine.host.gpus),
        root=None if user is None else user == "0",
        interfaces=frozenset((*machine.interfaces, "lo")) if machine.interfaces else frozenset(),
        environment=machine.environment,
    )


def _concerns(one: Checked, variables: dict[str, str]) -> bool:
    return any(evidence.where.removeprefix("$") in variables for evidence in one.evidence)


def _on_line(one: Checked, variables: dict[str, str], line: Line) -> Checked:
    """The finding with a fix that is a change of the line."""
    fix, given = one.fix, "-x " if line.launcher == "mpirun" else ""
    for name, value in variables.items():
        fix = re.sub(rf"\bunset {name}\b", lambda _, text=f"{name}={value}": f"leave out {given}{text}", fix)  # type: ignore[misc]
    if given:
        fix = _EXPORT.sub(lambda match: "".join(f"-x {word} " for word in match.group(1).split()), fix).rstrip()
    return structs.replace(one, fix=fix, stays=STAYS if fix else "")
