"""A launcher's command line, parsed: its options, the ranks' variables, and the program.

What a rule is: a check of a command line.
"""

import ipaddress
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from busbw.check.base import CheckOf, Judge
from busbw.check.command.options import HYDRA, LAUNCHERS, ONE, TWO
from busbw.check.launcher.parameters import Parameter
from busbw.core.finding import CheckRow

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PPR = re.compile(r"ppr:(\d+):(?:node|host)")
EXPORTS = ("ALL", "NONE", "NIL")  # srun --export
HOSTFILES = ("hostfile", "machinefile", "default-hostfile", "f")


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the launcher: `spelled` as on the line, `name` without dashes, with - for _."""

    spelled: str
    name: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """One host of `-H`. `slots` is the text after the colon, '' if there is none."""

    name: str
    slots: str = ""

    @property
    def count(self) -> int | None:
        """Its slots: one if no number is given.

        None for `*`, `auto`, a shell variable and other text.
        """
        if not self.slots:
            return None if unset(self.name) else 1
        return int(self.slots) if self.slots.isdecimal() else None

    @property
    def wrong(self) -> bool:
        """Whether the text after the colon is not a number of slots."""
        return (
            bool(self.slots)
            and self.count is None
            and self.slots.lower() not in ("*", "auto")
            and not unset(self.slots)
        )


@dataclass(frozen=True, slots=True)
class Line:
    """A command line, with facts of a machine: None, 0 or empty without one.

    `before` are the variables that are set in front of the launcher, `passed` those that its
    options give to the ranks: None for `-x NAME`, which takes the value of the environment. `major`
    is Open MPI's version, `interfaces` are those of the machine that starts the line, `environment`
    its variables, `gpus` those of a machine that runs ranks.
    """

    argv: tuple[str, ...]
    # Mpirun (Open MPI), hydra (mpirun of MPICH or Intel MPI), srun, torchrun, or '' for a program
    # alone.
    launcher: str = ""
    options: tuple[Option, ...] = ()
    before: tuple[tuple[str, str], ...] = ()
    passed: tuple[tuple[str, str | None], ...] = ()
    program: tuple[str, ...] = ()
    major: int = 0
    gpus: int = 0
    root: bool | None = None
    interfaces: frozenset[str] = frozenset()
    ranks_here: bool = False  # on the machine that starts the line
    environment: Mapping[str, str] | None = None

    @property
    def variables(self) -> tuple[tuple[str, str | None], ...]:
        """All variables that the line sets."""
        return (*self.before, *self.passed)

    @property
    def several(self) -> bool:
        """Whether it has ranks on several hosts, or may have: it reads a file with hosts."""
        return (self.nodes or 1) > 1 or self.has(*HOSTFILES)

    @property
    def allocated(self) -> bool:
        """Whether it runs within a job of Slurm, which knows the hosts.

        Slurm starts Open MPI's daemons with all variables.
        """
        return "SLURM_JOB_ID" in (self.environment or {})

    def values(self, *names: str) -> tuple[str, ...]:
        """The first values of all options with one of these names, in order."""
        return tuple(
            option.values[0] for option in self.options if option.name in names and option.values
        )

    def value(self, *names: str) -> str | None:
        """The last of `values`, which counts."""
        return next(iter(self.values(*names)[-1:]), None)

    def number(self, *names: str) -> int | None:
        """`value` as a number; None without the option or for other text."""
        value = self.value(*names)
        return int(value) if value is not None and value.isdecimal() else None

    def has(self, *names: str) -> bool:
        """Whether an option is given."""
        return any(option.name in names for option in self.options)

    @property
    def hosts(self) -> tuple[Place, ...]:
        """Hosts of mpirun's -H."""
        texts = (
            [part for value in self.values("H", "host") for part in value.split(",") if part]
            if self.launcher == "mpirun"
            else []
        )
        return tuple(Place(name + bracket, slots) for name, bracket, slots in map(_host, texts))

    @property
    def per_node(self) -> int | None:
        """Ranks on each host, if an option gives it."""
        if self.launcher == "mpirun":
            match = _PPR.search(self.value("map-by") or "")
            mapped = int(match.group(1)) if match else None
            return self.number("npernode", "N") or (1 if self.has("pernode") else mapped)
        if self.launcher == "hydra":
            return self.number("ppn", "perhost")
        return self.number("ntasks-per-node" if self.launcher == "srun" else "nproc-per-node")

    @property
    def nodes(self) -> int | None:
        """Number of hosts; None if the line does not give it."""
        if self.launcher == "mpirun":
            return (
                len(
                    {
                        name
                        for host in self.hosts
                        for name in ((host.name, host.slots) if host.wrong else (host.name,))
                    }
                )
                or None
            )
        return (
            self.number("N", "nodes")
            if self.launcher == "srun"
            else (self.number("nnodes") or (None if self.has("nnodes") else 1))
        )

    @property
    def ranks(self) -> int | None:
        """Number of ranks; None if the line does not give it, or has several programs."""
        if ":" in self.program:
            return None
        given = (
            self.number("n", "np", "c")
            if self.launcher in ("mpirun", "hydra")
            else self.number("n", "ntasks")
        )
        each, nodes = self.per_node, self.nodes
        return given or (each * nodes if each and nodes else None)

    @property
    def ranks_per_node(self) -> int | None:
        """The most ranks on one host; None if the line does not give it."""
        if self.per_node:
            return self.per_node
        slots = self.slots
        if self.ranks and slots and "node" not in (self.value("map-by") or ""):
            return min(self.ranks, max(slots.values()))
        return -(-self.ranks // self.nodes) if self.ranks and self.nodes else None

    @property
    def slots(self) -> dict[str, int]:
        """Slots of each host in -H; empty if one of them is unknown."""
        found: dict[str, int] = {}
        for host in self.hosts:
            if host.count is None:
                return {}
            found[host.name] = found.get(host.name, 0) + host.count
        return found

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Open MPI's parameters."""
        found = [
            one
            for one in self.options
            if self.launcher == "mpirun" and one.name in TWO["mpirun"] and len(one.values) == 2
        ]
        kinds = {option.name: option.name.removeprefix("g").removeprefix("o") for option in found}
        return tuple(
            Parameter(
                kinds[one.name], one.values[0], one.values[1], f"{one.spelled} {one.values[0]}"
            )
            for one in found
        )


def _host(text: str) -> tuple[str, str, str]:
    if text.startswith("["):
        name, bracket, rest = text.partition("]")
        return name, bracket, rest.removeprefix(":")
    try:
        return str(ipaddress.IPv6Address(text)), "", ""
    except ValueError:
        pass
    name, _, slots = text.partition(":")
    return name, "", slots


def parse(argv: Sequence[str]) -> Line:
    """The line, with what stands before the launcher: assignments, env, timeout and the like."""
    at, launcher = _launcher(argv)
    if not launcher:
        start = next(
            (
                index
                for index, word in enumerate(argv)
                if not _ASSIGNMENT.fullmatch(word) and word != "env"
            ),
            len(argv),
        )
        return Line(tuple(argv), before=_assigned(argv[:start]), program=tuple(argv[start:]))
    options, program = _options(argv[at + 1 :], launcher)
    if launcher == "mpirun" and any(option.name in HYDRA for option in options):
        launcher = "hydra"
        options, program = _options(argv[at + 1 :], launcher)
    passed: list[tuple[str, str | None]] = []
    for option in options:
        if launcher == "mpirun" and option.name == "x" and option.values:
            passed.append(_exported(option.values[0]))
        if launcher == "hydra" and option.name in ("genv", "env") and len(option.values) == 2:
            passed.append((option.values[0], option.values[1]))
        if launcher == "srun" and option.name == "export" and option.values:
            passed += [
                _exported(part) for part in option.values[0].split(",") if part not in EXPORTS
            ]
    return Line(
        tuple(argv), launcher, tuple(options), _assigned(argv[:at]), tuple(passed), tuple(program)
    )


def unset(text: str) -> bool:
    """Whether it has a variable or command that a shell would replace."""
    return "$" in text or "`" in text


def _assigned(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (match.group(1), match.group(2)) for word in words if (match := _ASSIGNMENT.fullmatch(word))
    )


def _exported(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    return name, value if equals else None


def _launcher(argv: Sequence[str]) -> tuple[int, str]:
    """Where the launcher is, and which."""
    for at, word in enumerate(argv):
        name = Path(word).name
        if name in LAUNCHERS:
            return at, LAUNCHERS[name]
    return 0, ""


def _options(words: Sequence[str], launcher: str) -> tuple[list[Option], list[str]]:
    """The launcher's options, and the program that follows them."""
    found, at = [], 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        word, _, attached = (
            words[at].partition("=") if words[at].startswith("--") else (words[at], "", "")
        )
        name = (
            word.lstrip("-")
            if launcher in ("mpirun", "hydra")
            else word.lstrip("-").replace("_", "-")
        )
        short = launcher == "srun" and len(word) > 2 and word[1] != "-" and word[1] in ONE["srun"]
        if launcher == "torchrun" and name in ("m", "module", "no-python"):
            break
        count = 0  # of the words after it that are its values
        if attached:
            values: tuple[str, ...] = (attached,)
        elif short:
            values = (word[2:],)
        else:
            count = 2 if name in TWO[launcher] else int(name in ONE[launcher])
            values = tuple(words[at + 1 : at + 1 + count])
        found.append(Option(word, word[1] if short else name, values))
        at += 1 + count
    rest = list(words[at:])
    return found, rest[1:] if rest[:1] == ["--"] else rest


def inner(program: Sequence[str]) -> tuple[str, ...]:
    """The program's words; for `bash -c '...'`, those of the last command in it."""
    if (
        len(program) > 2
        and Path(program[0]).name in ("bash", "sh")
        and program[1].startswith("-")
        and program[1].endswith("c")
    ):
        try:
            words = shlex.split(program[2])
        except ValueError:
            return tuple(program)
        ends = [
            index
            for index, word in enumerate(words)
            if word in ("&&", ";", "||") or word.endswith(";")
        ]
        return tuple(words[ends[-1] + 1 :] if ends else words)
    return tuple(program)


STAYS = "change the script or note that holds the line"

Rule = CheckOf[Line]
REGISTERED: list[Rule] = []  # by the decorator, as modules are imported


def rule(row: CheckRow) -> Callable[[Judge[Line]], Rule]:
    """Makes a function of a line the rule of `row`, which the registry then has."""

    def register(judge: Judge[Line]) -> Rule:
        made = Rule(row, judge)
        REGISTERED.append(made)
        return made

    return register
