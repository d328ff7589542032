"""Finds faults in a command line: the rules, and the NCCL checks on its variables.

Facts of this machine for a line: its launcher if installed, its GPUs if ranks run here.

What is wrong with command lines, read from words, a file or stdin.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from busbw.check.command.line import HOSTFILES, Line, parse, unset
from busbw.check.command.nccl_tests import perf
from busbw.check.command.options import LAUNCHERS
from busbw.check.command.script_parser import Found, commands
from busbw.check.launcher.programs import OpenMpi, open_mpi, shell_open_mpi
from busbw.check.machine import ENVIRONMENT, USER, Machine
from busbw.check.registry import CHECKS, HOSTNAME, RULES, run
from busbw.check.shell_words import assignment, word
from busbw.check.types import Checked, CommandReport, LineReport
from busbw.core.env import carried
from busbw.core.errors import UsageError
from busbw.core.finding import Layer, Verdict
from busbw.core.given_file import read_text
from busbw.core.masking import masked_words
from busbw.host import addresses
from busbw.host.source import Reading


def launcher_word(argv: Sequence[str]) -> str:
    """The launcher as it is written on the line; '' without one."""
    return next((word for word in argv if Path(word).name in LAUNCHERS), "")


def starts_here(argv: Sequence[str]) -> bool:
    """Whether this machine has the launcher of a line.

    A program without a launcher, and torchrun's module, run here.
    """
    word = launcher_word(argv)
    return not word or Path(word).name.startswith("torch.") or shutil.which(word) is not None


def ranks_here(line: Line, machine: Machine) -> bool:
    """Whether ranks run on this machine: the line names it, or names no host."""
    if line.launcher == "srun" or line.has(*HOSTFILES):
        return False
    named = {host.name for host in line.hosts}
    own = {"localhost", "127.0.0.1", *(machine.call("addresses", _addresses).text or "").split()}
    name = machine.text(HOSTNAME) or ""
    return not named or any(
        one in own or (name and one.partition(".")[0] == name.partition(".")[0]) for one in named
    )


def open_mpi_of(line: Line, machine: Machine) -> OpenMpi | None:
    """The Open MPI in PATH, or of busbw where the line names that by its path.

    None if it names another one.
    """
    word = launcher_word(line.argv)
    if "/" not in word:
        return shell_open_mpi(machine)
    every = (shell_open_mpi(machine), open_mpi(machine))
    return next(
        (
            installed
            for installed in every
            if installed
            and installed.path
            and os.path.realpath(word) == os.path.realpath(installed.path)
        ),
        None,
    )


def facts(line: Line, machine: Machine | None, exported: Mapping[str, str]) -> Line:
    """The line with what a machine adds. `exported` are variables that a script sets before it."""
    if machine is None:
        return replace(line, environment=exported) if exported else line
    found, user = open_mpi_of(line, machine), machine.call(USER, lambda: str(os.geteuid())).text
    # MPICH's, for example.
    other = line.launcher == "mpirun" and found is not None and bool(found.error)
    here = ranks_here(line, machine)
    return replace(
        line,
        launcher="hydra" if other else line.launcher,
        major=found.major if found else 0,
        gpus=len(machine.host.gpus) if here else 0,
        root=None if user is None else user == "0",
        interfaces=frozenset((*machine.interfaces, "lo")) if machine.interfaces else frozenset(),
        ranks_here=here,
        environment=(
            {**(machine.environment or {}), **exported}
            if machine.environment is not None or exported
            else None
        ),
    )


def named_facts(line: Line, machine: Machine) -> dict[str, str]:
    """The facts by name, as printed."""
    named = {"host": machine.text(HOSTNAME) or ""}
    if line.launcher in ("mpirun", "hydra"):
        found = open_mpi_of(line, machine)
        named["Open MPI"] = "another one"
        if found:
            installed = f"{found.version} ({found.path})"
            named["Open MPI"] = installed if found.version else found.error
        named["interfaces"] = ", ".join(machine.interfaces)
    if ranks_here(line, machine):
        named |= {"GPUs": str(len(machine.host.gpus)), "RDMA ports": str(len(machine.ports))}
    return named


def _addresses() -> str:
    return "\n".join(str(address.ip) for address in addresses.local().values() if address)


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


STDIN = "-"


def read(words: Sequence[str], stdin: str = "") -> tuple[list[Found], str]:
    """The commands, and the name of the text that they are in ('' for words).

    One word is a file with a script, `-` for `stdin`, or a whole line in quotes. UsageError without
    a command of a launcher.
    """
    if not words:
        raise UsageError(
            "no command line",
            "give it as you would start it: busbw check command -- mpirun -n 16 -H h1:8,h2:8"
            " PROGRAM",
        )
    if words[0] == STDIN and len(words) == 1:
        return commands(stdin, "stdin"), "stdin"
    if len(words) == 1 and any(letter.isspace() for letter in words[0]):
        return commands(words[0], "the line"), ""
    if len(words) == 1 and Path(words[0]).is_file() and not parse(words).launcher:
        try:
            text = read_text(words[0])
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise UsageError(
                f"{words[0]}: {reason}", "give a script, or a command line after --"
            ) from error
        return commands(text, words[0]), words[0]
    line = parse(words)
    if len(words) == 1 and not (line.launcher or perf(line)):
        raise UsageError(
            f"{words[0]}: neither a file nor a launcher",
            "give a script, or a command line after --",
        )
    return [Found(tuple(words), 0, {})], ""


def report(words: Sequence[str], stdin: str, machine: Machine | None) -> CommandReport:
    """The findings of each command. `machine` is used only if it has the launchers.

    UsageError as `read`.
    """
    found, source = read(words, stdin)
    here = machine if machine and all(starts_here(command.words) for command in found) else None
    lines = [
        LineReport(
            where=f"{source}, line {command.number}" if source else "",
            argv=masked_words(command.words),
            findings=lint(command.words, here, command.exported),
        )
        for command in found
    ]
    return CommandReport(
        lines=lines, facts=named_facts(parse(found[0].words), here) if here else {}
    )
