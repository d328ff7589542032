"""Finds faults in a command line: the rules, and the NCCL checks on its variables."""

import json
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import structs

from busbw.check.command.line import Line, parse, unset
from busbw.check.command.local_facts import facts, ranks_here
from busbw.check.examine import run
from busbw.check.machine import ENVIRONMENT, Machine
from busbw.check.registry import CHECKS, RULES
from busbw.check.shell_words import assignment, word
from busbw.check.types import Checked
from busbw.core.check_row import Layer
from busbw.core.env import carried
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict
from busbw.host.source import Reading

# A word of a shell command, of which parts may be quoted as check.shell_words does.
_WORD = r"""(?:\$'(?:\\.|[^'\\])*'|'[^']*'|"[^"]*"|[^\s'";])+"""
_EXPORT = re.compile(rf"\bexport ((?:[A-Z_0-9]+={_WORD} ?)+)")

NCCL_CHECKS = [check for check in CHECKS if check.row.layer is Layer.NCCL]


class _WithVariables:
    """A Source: a machine with the line's variables in its environment.

    Without a machine nothing else can be read.
    """

    def __init__(self, machine: Machine | None, variables: Mapping[str, str]) -> None:
        self._machine = machine
        self._text = json.dumps({**((machine.environment or {}) if machine else {}), **variables})

    def read(self, path: str) -> Reading:
        return (
            self._machine.read(path)
            if self._machine
            else Reading(None, f"{path}: no machine was read")
        )

    def names(self, path: str) -> tuple[str, ...]:
        return self._machine.names(path) if self._machine else ()

    def link(self, path: str) -> str | None:
        return self._machine.link(path) if self._machine else None

    def call(self, name: str, live: Callable[[], str]) -> Reading:
        if name == ENVIRONMENT:
            return Reading(self._text.encode())
        return (
            self._machine.call(name, live)
            if self._machine
            else Reading(None, "no machine was read")
        )


def lint(
    argv: Sequence[str], machine: Machine | None = None, exported: Mapping[str, str] | None = None
) -> list[Checked]:
    """All findings on a line, those of rules first.

    `machine`, which starts the line, adds its version of Open MPI and variables; its GPUs, ports
    and interfaces if it also runs ranks. `exported` are variables that a script sets before the
    line. UsageError for an empty line.
    """
    if not argv:
        raise UsageError(
            "no command line",
            "give it as you would start it: mpirun -n 16 -H h1:8,h2:8 ./build/all_reduce_perf",
        )
    line = facts(parse(argv), machine, exported or {})
    variables = carried(
        {name: value for name, value in line.variables if value is not None and not unset(value)}
    )
    ranks = Machine(
        _WithVariables(machine if machine and ranks_here(line, machine) else None, variables)
    )
    found = [finding for rule in RULES for finding in run(rule, line)]
    of_nccl = [
        finding
        for check in NCCL_CHECKS
        for finding in run(check, ranks)
        if finding.verdict is not Verdict.UNKNOWN
    ]
    every = found + [
        _on_line(finding, variables, line) for finding in of_nccl if _concerns(finding, variables)
    ]
    # A reboot does not affect a line.
    return [structs.replace(finding, stays="") for finding in every]


def _concerns(finding: Checked, variables: Mapping[str, str]) -> bool:
    return any(evidence.where.removeprefix("$") in variables for evidence in finding.evidence)


def _on_line(finding: Checked, variables: Mapping[str, str], line: Line) -> Checked:
    """The finding with a fix that is a change of the line."""
    fix, given = finding.fix, "-x " if line.launcher == "mpirun" else ""
    for name, value in variables.items():
        without = f"leave out {given}{assignment(name, value)}"
        pattern = rf"\bunset {re.escape(word(name))}(?![\w])"
        fix = re.sub(pattern, without.replace("\\", r"\\"), fix)
    if given:
        fix = _EXPORT.sub(
            lambda match: "".join(f"-x {text} " for text in re.findall(_WORD, match.group(1))), fix
        ).rstrip()
    return structs.replace(finding, fix=fix)
