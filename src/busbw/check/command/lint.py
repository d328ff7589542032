"""Finds faults in command lines, which come from words, a script or stdin.

A line is judged by the rules, and its variables by the NCCL checks. This machine adds facts: its
launcher if the line starts here, its GPUs and ports if ranks run here.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from busbw.check.command.line import HOSTFILES, CommandLine, inner_variables, needs_shell
from busbw.check.command.nccl_tests import perf
from busbw.check.command.options import LAUNCHERS
from busbw.check.command.parse_line import parse
from busbw.check.command.script_parser import ScriptCommand, commands
from busbw.check.launcher.programs import OpenMpi, open_mpi, shell_open_mpi
from busbw.check.machine import ENVIRONMENT, USER, Machine
from busbw.check.rates import HOSTNAME
from busbw.check.registry import CHECKS, RULES, run
from busbw.check.shell_words import assignment, word
from busbw.check.types import CommandReport, LineReport, ReportedFinding
from busbw.core.env import carried
from busbw.core.errors import UsageError
from busbw.core.finding import Layer, Verdict
from busbw.core.given_file import read_text
from busbw.core.masking import masked_words
from busbw.host import addresses
from busbw.host.source import Reading

# A word of a shell command. Parts of it may be quoted, as check.shell_words does.
_WORD = r"""(?:\$'(?:\\.|[^'\\])*'|'[^']*'|"[^"]*"|[^\s'";])+"""
_EXPORT = re.compile(rf"\bexport ((?:[A-Z_0-9]+={_WORD} ?)+)")
NCCL_CHECKS = [check for check in CHECKS if check.row.layer is Layer.NCCL]
STDIN, PATH = "-", "PATH"
# Rules that a missing option breaks.
RULES_ON_MISSING = (
    "line-binding",
    "line-export",
    "line-interfaces",
    "line-program",
    "line-root",
    "line-torchrun",
)


def launcher_word(argv: Sequence[str]) -> str:
    """The launcher as it is written on the line; '' without one."""
    return next((word for word in argv if Path(word).name in LAUNCHERS), "")


def starts_here(argv: Sequence[str]) -> bool:
    """Whether this machine has the launcher of a line.

    A program without a launcher starts here, and so does torchrun as a module of Python.
    """
    word = launcher_word(argv)
    return not word or Path(word).name.startswith("torch.") or shutil.which(word) is not None


def ranks_here(line: CommandLine, machine: Machine) -> bool:
    """Whether ranks run on this machine: the line names it, or names no host."""
    if line.launcher == "srun" or line.has(*HOSTFILES):
        return False
    hosts = {host.name for host in line.hosts}
    if not hosts:
        return True
    addresses = (machine.call("addresses", _local_addresses).text or "").split()
    if hosts & {"localhost", "127.0.0.1", *addresses}:
        return True
    hostname = machine.text(HOSTNAME) or ""
    short_names = {host.partition(".")[0] for host in hosts}
    return bool(hostname) and hostname.partition(".")[0] in short_names


def open_mpi_of(line: CommandLine, machine: Machine) -> OpenMpi | None:
    """The Open MPI in PATH, or busbw's own if the line names its mpirun by a path.

    None if it names another mpirun.
    """
    word = launcher_word(line.argv)
    if "/" not in word:
        return shell_open_mpi(machine)
    for installed in (shell_open_mpi(machine), open_mpi(machine)):
        path = installed.path if installed else ""
        if path and os.path.realpath(word) == os.path.realpath(path):
            return installed
    return None


def facts(line: CommandLine, machine: Machine | None, exported: Mapping[str, str]) -> CommandLine:
    """The line with what a machine adds. `exported` are variables that a script sets before it."""
    line = replace(line, exported=tuple(name for name in exported if name.startswith("NCCL_")))
    if machine is None:
        return replace(line, environment=exported) if exported else line
    installed = open_mpi_of(line, machine)
    # An mpirun that is not Open MPI's may be that of MPICH.
    mpich = line.launcher == "mpirun" and installed is not None and bool(installed.error)
    user = machine.call(USER, lambda: str(os.geteuid())).text
    interfaces = (*machine.interfaces, "lo") if machine.interfaces else ()
    environment = None
    if machine.environment is not None or exported:
        environment = {**(machine.environment or {}), **exported}
    local = ranks_here(line, machine)
    sets_path = PATH in exported or PATH in dict(line.before)
    return replace(
        line,
        launcher="hydra" if mpich else line.launcher,
        program_path="" if sets_path else _program_path(line, machine),
        major=installed.major if installed else 0,
        gpus=len(machine.host.gpus) if local else 0,
        root=None if user is None else user == "0",
        interfaces=frozenset(interfaces),
        ranks_here=local,
        environment=environment,
        environment_is_whole=machine.environment is not None,
    )


def _program_path(line: CommandLine, machine: Machine) -> str:
    """Where the line's program is on the PATH here; '' for a path, or if it is not found."""
    program = line.program[0] if line.program else ""
    if not program or "/" in program:
        return ""
    reading = machine.call(f"{program} on PATH", lambda: shutil.which(program) or "")
    return reading.text or ""


def named_facts(line: CommandLine, machine: Machine) -> dict[str, str]:
    """The facts by name, as printed."""
    named = {"host": machine.text(HOSTNAME) or ""}
    if line.launcher in ("mpirun", "hydra"):
        installed = open_mpi_of(line, machine)
        if installed is None:
            named["Open MPI"] = "another one"
        elif installed.version:
            named["Open MPI"] = f"{installed.version} ({installed.path})"
        else:
            named["Open MPI"] = installed.error
        named["interfaces"] = ", ".join(machine.interfaces)
    if ranks_here(line, machine):
        named |= {"GPUs": str(len(machine.host.gpus)), "RDMA ports": str(len(machine.ports))}
    return named


def _local_addresses() -> str:
    return "\n".join(str(address.ip) for address in addresses.local().values() if address)


class _WithVariables:
    """A Source: a machine with the line's variables in its environment.

    Without a machine nothing else can be read.
    """

    def __init__(self, machine: Machine | None, variables: Mapping[str, str]) -> None:
        self._machine = machine
        self._text = json.dumps({**((machine.environment or {}) if machine else {}), **variables})

    def read(self, path: str) -> Reading:
        if self._machine is None:
            return Reading(None, f"{path}: no machine was read")
        return self._machine.read(path)

    def names(self, path: str) -> tuple[str, ...]:
        return self._machine.names(path) if self._machine else ()

    def link(self, path: str) -> str | None:
        return self._machine.link(path) if self._machine else None

    def call(self, name: str, live: Callable[[], str]) -> Reading:
        if name == ENVIRONMENT:
            return Reading(self._text.encode())
        if self._machine is None:
            return Reading(None, "no machine was read")
        return self._machine.call(name, live)


def lint(
    argv: Sequence[str], machine: Machine | None = None, exported: Mapping[str, str] | None = None
) -> list[ReportedFinding]:
    """All findings on a line, those of the rules first.

    `machine` is the one that starts the line. It adds its version of Open MPI and its variables; if
    it also runs ranks, its GPUs, ports and interfaces. `exported` are variables that a script sets
    before the line. UsageError for an empty line.
    """
    if not argv:
        raise UsageError(
            "no command line",
            "give it as you would start it: mpirun -n 16 -H h1:8,h2:8 ./build/all_reduce_perf",
        )
    line = facts(parse(argv), machine, exported or {})
    texts = _variables_of_ranks(line, exported or {})
    variables = carried({name: text for name, text in texts.items() if not needs_shell(text)})
    rank_machine = machine if machine and ranks_here(line, machine) else None
    ranks = Machine(_WithVariables(rank_machine, variables))
    findings = [_unless_hidden(finding, line) for rule in RULES for finding in run(rule, line)]
    for check in NCCL_CHECKS:
        findings += [
            _with_fix_of_line(finding, variables, line)
            for finding in run(check, ranks)
            if finding.verdict is not Verdict.UNKNOWN and _concerns(finding, variables)
        ]
    # A reboot does not affect a line.
    return [structs.replace(finding, stays="") for finding in findings]


def _variables_of_ranks(line: CommandLine, exported: Mapping[str, str]) -> dict[str, str]:
    """The variables that the line and the script before it give to the ranks, with their values.

    mpirun passes on only what -x names.
    """
    of_line = {name: value for name, value in line.variables if value is not None}
    named = [name for name, _ in line.passed] if line.launcher == "mpirun" else exported
    of_script = {name: exported[name] for name in named if name in exported}
    return of_script | of_line | inner_variables(line.program)


def _unless_hidden(finding: ReportedFinding, line: CommandLine) -> ReportedFinding:
    """The finding, unknown if it is of a missing option and a variable may hold that option."""
    bad = finding.verdict in (Verdict.WARN, Verdict.FAIL)
    if not bad or finding.name not in RULES_ON_MISSING or not line.hidden_options:
        return finding
    message = f"{finding.message}, unless {line.hidden_options} holds the option"
    return structs.replace(finding, verdict=Verdict.UNKNOWN, message=message)


def _concerns(finding: ReportedFinding, variables: Mapping[str, str]) -> bool:
    return any(evidence.where.removeprefix("$") in variables for evidence in finding.evidence)


def _with_fix_of_line(
    finding: ReportedFinding, variables: Mapping[str, str], line: CommandLine
) -> ReportedFinding:
    """The finding with a fix that is a change of the line."""
    fix, option = finding.fix, "-x " if line.launcher == "mpirun" else ""
    within = inner_variables(line.program)
    for name, value in variables.items():
        without = f"leave out {'' if name in within else option}{assignment(name, value)}"
        pattern = rf"\bunset {re.escape(word(name))}(?![\w])"
        fix = re.sub(pattern, without.replace("\\", r"\\"), fix)
    if option and not within:
        fix = _EXPORT.sub(_as_options, fix).rstrip()
    return structs.replace(finding, fix=fix)


def _as_options(export: re.Match[str]) -> str:
    """`-x A=1 -x B=2 ` for `export A=1 B=2`."""
    return "".join(f"-x {text} " for text in re.findall(_WORD, export.group(1)))


def read(words: Sequence[str], stdin: str = "") -> tuple[list[ScriptCommand], str]:
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
    return [ScriptCommand(tuple(words), 0, {})], ""


def report(words: Sequence[str], stdin: str, machine: Machine | None) -> CommandReport:
    """The findings of each command. `machine` is used only if it has the launchers.

    UsageError as `read`.
    """
    script, source = read(words, stdin)
    starter = machine if all(starts_here(command.words) for command in script) else None
    lines = [
        LineReport(
            where=f"{source}, line {command.number}" if source else "",
            argv=masked_words(command.words),
            findings=lint(command.words, starter, command.exported),
        )
        for command in script
    ]
    first_line = parse(script[0].words)
    return CommandReport(lines=lines, facts=named_facts(first_line, starter) if starter else {})
