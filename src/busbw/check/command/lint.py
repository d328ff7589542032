"""Finds faults in a command line: the rules, and the NCCL checks on the variables that the line sets."""

import json
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import structs

from busbw.check import command, nccl
from busbw.check.command.here import facts, ranks_here
from busbw.check.command.line import Line, parse, unset
from busbw.check.examine import run
from busbw.check.machine import ENVIRONMENT, Machine
from busbw.check.shell_words import assignment, word
from busbw.check.types import Checked
from busbw.core.env import carried
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict
from busbw.host.source import Reading

# A word of a shell command, of which parts may be quoted as core.shell_words does.
_WORD = r"""(?:\$'(?:\\.|[^'\\])*'|'[^']*'|"[^"]*"|[^\s'";])+"""
_EXPORT = re.compile(rf"\bexport ((?:[A-Z_0-9]+={_WORD} ?)+)")


class _WithVariables:
    """A Source: a machine with the line's variables in its environment. Without a machine nothing else can be read."""

    def __init__(self, machine: Machine | None, variables: Mapping[str, str]) -> None:
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


def lint(argv: Sequence[str], machine: Machine | None = None, exported: Mapping[str, str] | None = None) -> list[Checked]:
    """All findings on a line, those of rules first.

    `machine`, which starts the line, adds its version of Open MPI and variables; its GPUs, ports and interfaces if it also runs ranks.
    `exported` are variables that a script sets before the line. UsageError for an empty line.
    """
    if not argv:
        raise UsageError("no command line", "give it as you would start it: mpirun -n 16 -H h1:8,h2:8 ./build/all_reduce_perf")
    line = facts(parse(argv), machine, exported or {})
    variables = carried({name: value for name, value in line.variables if value is not None and not unset(value)})
    ranks = Machine(_WithVariables(machine if machine and ranks_here(line, machine) else None, variables))
    found = [one for rule in command.CHECKS for one in run(rule, line)]
    of_nccl = [one for check in nccl.CHECKS for one in run(check, ranks) if one.verdict is not Verdict.UNKNOWN]
    every = found + [_on_line(one, variables, line) for one in of_nccl if _concerns(one, variables)]
    return [structs.replace(one, stays="") for one in every]  # a reboot does not affect a line


def _concerns(one: Checked, variables: Mapping[str, str]) -> bool:
    return any(evidence.where.removeprefix("$") in variables for evidence in one.evidence)


def _on_line(one: Checked, variables: Mapping[str, str], line: Line) -> Checked:
    """The finding with a fix that is a change of the line."""
    fix, given = one.fix, "-x " if line.launcher == "mpirun" else ""
    for name, value in variables.items():
        text = assignment(name, value)
        fix = re.sub(rf"\bunset {re.escape(word(name))}(?![\w])", lambda _, text=text: f"leave out {given}{text}", fix)  # type: ignore[misc]
    if given:
        fix = _EXPORT.sub(lambda match: "".join(f"-x {one} " for one in re.findall(_WORD, match.group(1))), fix).rstrip()
    return structs.replace(one, fix=fix)
