"""A launcher's command line: its options, the ranks' variables, and the program.

A rule is a check of such a line; `rule` registers it.
"""

import ipaddress
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from busbw.check.base import CheckOf, Judge
from busbw.check.command.options import OPTIONS_WITH_TWO_VALUES
from busbw.check.command.shell_split import split_commands
from busbw.check.launcher.parameters import McaParameter
from busbw.core.finding import CheckRow

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PPR = re.compile(r"ppr:(\d+):(?:node|host)")
EXPORTS = ("ALL", "NONE", "NIL")  # srun --export
HOSTFILES = ("hostfile", "machinefile", "default-hostfile", "f")
EXPANDED = "$"  # the name of a word in place of options that a shell expands
# What Slurm sets in a job; srun takes options that it is not given from them.
JOB_ID, JOB_NODES, JOB_TASKS = "SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS"
JOB_TASKS_PER_NODE, JOB_GPUS_PER_NODE = "SLURM_NTASKS_PER_NODE", "SLURM_GPUS_PER_NODE"
CHANGE_SCRIPT = "change the script or note that holds the line"


@dataclass(frozen=True, slots=True)
class LauncherOption:
    """One option of the launcher: `spelled` as on the line, `name` without its leading dashes.

    For srun and torchrun `name` has - in place of _.
    """

    spelled: str
    name: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostSlots:
    """One host of `-H`. `slots` is the text after the colon, '' if there is none."""

    name: str
    slots: str = ""

    @property
    def count(self) -> int | None:
        """Its number of slots: 1 if the host has no text after its name.

        None for `*`, `auto`, a shell variable and other text.
        """
        if not self.slots:
            return None if needs_shell(self.name) else 1
        return int(self.slots) if self.slots.isdecimal() else None

    @property
    def wrong(self) -> bool:
        """Whether the text after the colon is not a number of slots."""
        if not self.slots or self.count is not None:
            return False
        return self.slots.lower() not in ("*", "auto") and not needs_shell(self.slots)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line, with facts of a machine: None, 0 or empty without one."""

    argv: tuple[str, ...]
    # mpirun (Open MPI), hydra (mpirun of MPICH or Intel MPI), srun, torchrun; '' without one
    launcher: str = ""
    options: tuple[LauncherOption, ...] = ()
    before: tuple[tuple[str, str], ...] = ()  # variables set in front of the launcher
    # variables that its options give to the ranks; None: as in the environment (`-x NAME`)
    passed: tuple[tuple[str, str | None], ...] = ()
    program: tuple[str, ...] = ()
    program_path: str = ""  # the program on the PATH of the machine that starts the line
    major: int = 0  # Open MPI's version
    gpus: int = 0  # of a machine that runs ranks
    root: bool | None = None
    interfaces: frozenset[str] = frozenset()  # of the machine that starts the line
    ranks_here: bool = False  # on the machine that starts the line
    environment: Mapping[str, str] | None = None  # of the machine that starts the line
    environment_is_whole: bool = False  # not only what a script exports
    exported: tuple[str, ...] = ()  # names of NCCL's variables that a script exports before it

    @property
    def hidden_options(self) -> str:
        """A word that may hold options of the launcher, as $MPI_ARGS does; '' without one."""
        for option in self.options:
            if option.name == EXPANDED:
                return option.spelled
        first, second = [*self.program, "", ""][:2]
        # $ARGS ./program, but not $PROGRAM --option
        return first if needs_shell(first) and second and not second.startswith("-") else ""

    @property
    def variables(self) -> tuple[tuple[str, str | None], ...]:
        """All variables that the line sets, with their values."""
        return (*self.before, *self.passed)

    @property
    def several(self) -> bool:
        """Whether it has ranks on several hosts, or may have them: it reads a file of hosts."""
        return (self.nodes or 1) > 1 or self.has(*HOSTFILES)

    @property
    def allocated(self) -> bool:
        """Whether it runs within a job of Slurm, which knows the hosts.

        Slurm starts Open MPI's daemons with all variables.
        """
        return JOB_ID in (self.environment or {})

    def values(self, *names: str) -> tuple[str, ...]:
        """The first values of all options with one of these names, in order."""
        return tuple(
            option.values[0] for option in self.options if option.name in names and option.values
        )

    def value(self, *names: str) -> str | None:
        """The last of `values`, which is the one that counts; None without any."""
        values = self.values(*names)
        return values[-1] if values else None

    def number(self, *names: str) -> int | None:
        """`value` as a number; None without the option or for other text."""
        value = self.value(*names)
        return int(value) if value is not None and value.isdecimal() else None

    def of_job(self, variable: str) -> int | None:
        """A number that Slurm sets in a job; None without one."""
        value = (self.environment or {}).get(variable, "")
        return int(value) if value.isdecimal() else None

    def _nodes_of_job(self) -> int | None:
        """The hosts of a job that srun uses: no more than it has tasks."""
        nodes, tasks = self.of_job(JOB_NODES), self.number("n", "ntasks")
        return min(nodes, tasks) if nodes and tasks else nodes

    def _tasks_of_job(self, variable: str) -> int | None:
        """As `of_job`; None if the line gives its own number of tasks."""
        own = self.has("n", "ntasks", "ntasks-per-node")
        return None if own else self.of_job(variable)

    def has(self, *names: str) -> bool:
        return any(option.name in names for option in self.options)

    @property
    def hosts(self) -> tuple[HostSlots, ...]:
        """The hosts of mpirun's -H, with their slots."""
        if self.launcher != "mpirun":
            return ()
        lists = self.values("H", "host")
        return tuple(_parse_host(text) for hosts in lists for text in hosts.split(",") if text)

    @property
    def _hosts_in_one_word(self) -> bool:
        """Whether one word holds all hosts, as in `-H $HOSTS:8`: their number is unknown."""
        name = self.hosts[0].name if len(self.hosts) == 1 else ""
        return needs_shell(name) or "[" in name[1:]

    @property
    def per_node(self) -> int | None:
        """Number of ranks on each host; None if no option gives it."""
        if self.launcher == "mpirun":
            match = _PPR.search(self.value("map-by") or "")
            mapped = int(match.group(1)) if match else None
            return self.number("npernode", "N") or (1 if self.has("pernode") else mapped)
        if self.launcher == "hydra":
            return self.number("ppn", "perhost")
        if self.launcher != "srun":
            return self.number("nproc-per-node")
        return self.number("ntasks-per-node") or self._tasks_of_job(JOB_TASKS_PER_NODE)

    @property
    def nodes(self) -> int | None:
        """Number of hosts; None if the line does not give it."""
        if self.launcher == "mpirun":
            if self._hosts_in_one_word:
                return None
            names = {host.name for host in self.hosts}
            # In host1:host2 the text after the colon is a host too.
            names |= {host.slots for host in self.hosts if host.wrong}
            return len(names) or None
        if self.launcher == "srun":
            own = self.has("N", "nodes", "w", "nodelist")
            return self.number("N", "nodes") if own else self._nodes_of_job()
        return self.number("nnodes") or (None if self.has("nnodes") else 1)

    @property
    def ranks(self) -> int | None:
        """Number of ranks; None if the line does not give it, or has several programs."""
        if ":" in self.program:
            return None
        of_mpirun = self.launcher in ("mpirun", "hydra")
        total = self.number("n", "np", "c") if of_mpirun else self.number("n", "ntasks")
        if total is None and self.launcher == "srun":
            total = self._tasks_of_job(JOB_TASKS)
        if total:
            return total
        per_node, nodes = self.per_node, self.nodes
        return per_node * nodes if per_node and nodes else None

    @property
    def ranks_per_node(self) -> int | None:
        """The largest number of ranks on a host; None if the line does not give it."""
        if self.per_node:
            return self.per_node
        slots = self.slots
        if self.ranks and slots and "node" not in (self.value("map-by") or ""):
            return min(self.ranks, max(slots.values()))
        return -(-self.ranks // self.nodes) if self.ranks and self.nodes else None

    @property
    def slots(self) -> dict[str, int]:
        """Slots of each host in -H; empty if one of them is unknown."""
        if self._hosts_in_one_word:
            return {}
        by_host: dict[str, int] = {}
        for host in self.hosts:
            if host.count is None:
                return {}
            by_host[host.name] = by_host.get(host.name, 0) + host.count
        return by_host

    @property
    def parameters(self) -> tuple[McaParameter, ...]:
        """Open MPI's parameters on the line, in order."""
        if self.launcher != "mpirun":
            return ()
        parameters = []
        for option in self.options:
            if option.name in OPTIONS_WITH_TWO_VALUES["mpirun"] and len(option.values) == 2:
                kind = option.name.removeprefix("g").removeprefix("o")
                name, value = option.values
                parameters.append(McaParameter(kind, name, value, f"{option.spelled} {name}"))
        return tuple(parameters)


def _parse_host(text: str) -> HostSlots:
    """`host1:8`, or an IPv6 address, which has slots only in brackets: `[fe80::1]:8`."""
    if text.startswith("["):
        address, bracket, slots = text.partition("]")
        return HostSlots(address + bracket, slots.removeprefix(":"))
    try:
        return HostSlots(str(ipaddress.IPv6Address(text)))
    except ValueError:
        name, _, slots = text.partition(":")
        return HostSlots(name, slots)


def needs_shell(text: str) -> bool:
    """Whether the text has a variable or command that a shell or a template would replace."""
    return "$" in text or "`" in text or "{{" in text


def inner(program: Sequence[str]) -> tuple[str, ...]:
    """The program's words; for `bash -c '...'`, those of the last command in it."""
    try:
        words = shlex.split(_shell_text(program))
    except ValueError:
        words = []
    command: list[str] = []
    for word in words:
        command.append(word)
        if word in ("&&", "||") or word.endswith(";"):
            command.clear()
    return tuple(command if words else program)


def _shell_text(program: Sequence[str]) -> str:
    """The text after `bash -c`; '' for other programs."""
    is_shell = len(program) > 2 and Path(program[0]).name in ("bash", "sh")
    return program[2] if is_shell and re.fullmatch(r"-\w*c", program[1]) else ""


def inner_variables(program: Sequence[str]) -> dict[str, str]:
    """The variables that a program sets for another: `env A=1 ...`, `bash -c 'export A=1; ...'`."""
    found: dict[str, str] = {}
    own = [program] if program and program[0] == "env" else []
    for words in (*own, *split_commands(_shell_text(program))):
        for word in words[1:] if words[0] in ("env", "export") else words:
            match = ASSIGNMENT.fullmatch(word)
            if not match:
                break
            found[match[1]] = match[2]
    return found


Rule = CheckOf[CommandLine]
REGISTERED: list[Rule] = []  # by the decorator, as modules are imported


def rule(row: CheckRow) -> Callable[[Judge[CommandLine]], Rule]:
    """Makes a function of a line the rule of `row`, which the registry then has."""

    def register(judge: Judge[CommandLine]) -> Rule:
        registered = Rule(row, judge)
        REGISTERED.append(registered)
        return registered

    return register
