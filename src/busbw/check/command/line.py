"""A launcher's command line, parsed: its options, the variables that it gives to ranks, and the program."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from busbw.check.command.options import ONE, OPEN_MPI, TORCHRUN, TWO
from busbw.check.launcher.parameters import Parameter

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PPR = re.compile(r"ppr:(\d+):(?:node|host)")


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
    def count(self) -> int:
        """Its slots: one if no number is given."""
        return int(self.slots) if self.slots.isdigit() else 1


@dataclass(frozen=True, slots=True)
class Line:
    """A command line. What a machine knows beside it is None or 0 where there is no machine.

    `variables` are those that the line gives to the ranks, None for `-x NAME`, which takes the value of the environment. `major` is Open
    MPI's version, `gpus` how many a host has, `interfaces` the names on this host, `environment` this host's variables.
    """

    argv: tuple[str, ...]
    launcher: str = ""  # mpirun, srun, torchrun, or '' for a program alone
    options: tuple[Option, ...] = ()
    variables: tuple[tuple[str, str | None], ...] = ()
    program: tuple[str, ...] = ()
    major: int = 0
    gpus: int = 0
    root: bool | None = None
    interfaces: frozenset[str] = frozenset()
    environment: Mapping[str, str] | None = None

    def values(self, *names: str) -> tuple[str, ...]:
        """The first values of all options with one of these names, in order."""
        return tuple(option.values[0] for option in self.options if option.name in names and option.values)

    def value(self, *names: str) -> str | None:
        """The last of `values`, which counts."""
        return next(iter(self.values(*names)[-1:]), None)

    def number(self, *names: str) -> int | None:
        """`value` as a number; None without the option or for other text."""
        value = self.value(*names)
        return int(value) if value is not None and value.isdigit() else None

    def has(self, *names: str) -> bool:
        """Whether an option is given."""
        return any(option.name in names for option in self.options)

    @property
    def hosts(self) -> tuple[Place, ...]:
        """Hosts of mpirun's -H."""
        texts = [part for value in self.values("H", "host") for part in value.split(",") if part] if self.launcher == "mpirun" else []
        return tuple(Place(name + bracket, slots) for name, bracket, slots in map(_host, texts))

    @property
    def per_node(self) -> int | None:
        """Ranks that each host gets, where an option says it."""
        if self.launcher == "mpirun":
            match = _PPR.search(self.value("map-by") or "")
            return self.number("npernode", "N", "ppn") or (int(match.group(1)) if match else None)
        return self.number("ntasks-per-node" if self.launcher == "srun" else "nproc-per-node")

    @property
    def nodes(self) -> int | None:
        """Number of hosts; None if the line does not say."""
        if self.launcher == "mpirun":
            return len({host.name for host in self.hosts}) or None
        return self.number("N", "nodes") if self.launcher == "srun" else (self.number("nnodes") or (None if self.has("nnodes") else 1))

    @property
    def ranks(self) -> int | None:
        """Number of ranks; None if the line does not say."""
        given = self.number("n", "np", "c") if self.launcher == "mpirun" else self.number("n", "ntasks")
        each, nodes = self.per_node, self.nodes
        return given or (each * nodes if each and nodes else None)

    @property
    def ranks_per_node(self) -> int | None:
        """The most ranks that a host gets; None if the line does not say."""
        if self.per_node:
            return self.per_node
        if self.ranks and self.hosts:
            return min(self.ranks, max(host.count for host in self.hosts))
        return -(-self.ranks // self.nodes) if self.ranks and self.nodes else None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Open MPI's parameters."""
        found = [option for option in self.options if option.name in TWO and len(option.values) == 2]
        kinds = {option.name: option.name.removeprefix("g").removeprefix("o") for option in found}
        return tuple(Parameter(kinds[one.name], one.values[0], one.values[1], f"{one.spelled} {one.values[0]}") for one in found)


def _host(text: str) -> tuple[str, str, str]:
    if text.startswith("["):
        name, bracket, rest = text.partition("]")
        return name, bracket, rest.removeprefix(":")
    name, _, slots = text.partition(":")
    return name, "", slots


def parse(argv: Sequence[str]) -> Line:
    """The line, with what stands before the launcher: assignments, env, timeout and the like."""
    at, launcher = _launcher(argv)
    variables = _assigned(argv[:at])
    if not launcher:
        start = next((index for index, word in enumerate(argv) if not _ASSIGNMENT.fullmatch(word) and word != "env"), len(argv))
        return Line(tuple(argv), variables=tuple(_assigned(argv[:start])), program=tuple(argv[start:]))
    options, program = _options(argv[at + 1 :], launcher)
    for option in options:
        if launcher == "mpirun" and option.name == "x" and option.values:
            variables.append(_exported(option.values[0]))
        if launcher == "srun" and option.name == "export" and option.values:
            variables += [_exported(part) for part in option.values[0].split(",") if part not in ("ALL", "NONE", "NIL")]
    return Line(tuple(argv), launcher, tuple(options), tuple(variables), tuple(program))


def _assigned(words: Sequence[str]) -> list[tuple[str, str | None]]:
    return [(match.group(1), match.group(2)) for word in words if (match := _ASSIGNMENT.fullmatch(word))]


def _exported(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    return name, value if equals else None


def _launcher(argv: Sequence[str]) -> tuple[int, str]:
    """Where the launcher is, and which."""
    for at, word in enumerate(argv):
        name = Path(word).name
        if name in OPEN_MPI or name == "srun" or name in TORCHRUN:
            return at, "mpirun" if name in OPEN_MPI else "srun" if name == "srun" else "torchrun"
    return 0, ""


def _options(words: Sequence[str], launcher: str) -> tuple[list[Option], list[str]]:
    """The launcher's options, and the program that follows them."""
    found, at = [], 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        word, _, attached = words[at].partition("=") if words[at].startswith("--") else (words[at], "", "")
        name = word.lstrip("-") if launcher == "mpirun" else word.lstrip("-").replace("_", "-")
        short = launcher == "srun" and len(word) > 2 and word[1] != "-" and word[1] in ONE["srun"]
        if launcher == "torchrun" and name in ("m", "module", "no-python"):
            break
        count = 0 if attached or short else 2 if name in TWO else 1 if name in ONE[launcher] else 0
        values = (attached,) if attached else (word[2:],) if short else tuple(words[at + 1 : at + 1 + count])
        found.append(Option(words[at].partition("=")[0] if attached else word, word[1] if short else name, values))
        at += 1 + count
    rest = list(words[at:])
    return found, rest[1:] if rest[:1] == ["--"] else rest


def inner(program: Sequence[str]) -> tuple[str, ...]:
    """The program's words; of `bash -c '...'` those of the last command in it."""
    if len(program) > 2 and Path(program[0]).name in ("bash", "sh") and program[1].startswith("-") and program[1].endswith("c"):
        try:
            words = shlex.split(program[2])
        except ValueError:
            return tuple(program)
        ends = [index for index, word in enumerate(words) if word in ("&&", ";", "||") or word.endswith(";")]
        return tuple(words[ends[-1] + 1 :] if ends else words)
    return tuple(program)
