"""NCCL's variables as a rank would get them, and the lists of names that they hold."""

import os
import pwd
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps

from busbw.check.base import ENVIRONMENT, Check, check, passed
from busbw.check.machine import Machine
from busbw.check.nccl.plugins import plugin_with
from busbw.check.shell_words import assignment, filled, word
from busbw.check.types import Evidence, Finding
from busbw.core.env import shown
from busbw.core.finding import CheckRow, Verdict
from busbw.host import nccl_libraries, nccl_packages
from busbw.host.source import once

REMOVE_VARIABLE = "remove it from the job script, /etc/nccl.conf and ~/.nccl.conf"
VARIABLE_SOURCES = ("environment", nccl_packages.SYSTEM, "~/.nccl.conf")
LIBRARIES_CALL = "nccl-libraries"


@dataclass(frozen=True, slots=True)
class NcclSetting:
    """One variable with its value. `file` is where it is set, '' for the environment."""

    name: str
    value: str
    file: str = ""

    def evidence(self, expected: str = "") -> Evidence:
        """The value, with the place where it is set."""
        where = f"{self.file}: {self.name}" if self.file else f"${self.name}"
        return Evidence(where, self.value, expected)

    @property
    def text(self) -> str:
        """`NAME=VALUE`."""
        return f"{self.name}={self.value}"

    @property
    def unset(self) -> str:
        """The command or change without the variable."""
        if not self.file:
            return f"unset {word(self.name)}"
        return filled("delete the line {text} from {file}", text=self.text, file=self.file)

    def change_to(self, value: str) -> str:
        """The command or change that gives it another value."""
        text = assignment(self.name, value)
        return f"write {text} in {word(self.file)}" if self.file else f"export {text}"


def files(machine: Machine) -> tuple[str, ...]:
    """Files that NCCL reads, in order of precedence; the environment precedes all."""
    home = machine.call("home", lambda: pwd.getpwuid(os.getuid()).pw_dir).text or ""
    variable = (machine.environment or {}).get(nccl_packages.FILE_VARIABLE, "")
    user_file = nccl_packages.user_file(variable, home)
    return (user_file, nccl_packages.SYSTEM) if user_file else (nccl_packages.SYSTEM,)


@once
def settings(machine: Machine) -> dict[str, NcclSetting]:
    """Variables by name, those of NCCL, PyTorch, Gloo and CUDA; none without an environment.

    NCCL ignores empty values.
    """
    if machine.environment is None:
        return {}
    by_name = {
        name: NcclSetting(name, value) for name, value in machine.environment.items() if value
    }
    for path in files(machine):
        for line in nccl_packages.parse(machine.text(path) or ""):
            if line.value and line.name not in machine.environment:
                by_name.setdefault(
                    line.name, NcclSetting(line.name, shown(line.name, line.value), path)
                )
    return by_name


Judge = Callable[[Machine, NcclSetting], Finding]


def variable(row: CheckRow, *names: str) -> Callable[[Judge], Check]:
    """Makes a function that judges a set variable the check of `row`; see `each_variable`."""

    def register(judge: Judge) -> Check:
        @check(row, needs=ENVIRONMENT)
        @wraps(judge)
        def judge_all(machine: Machine) -> Iterator[Finding]:
            return each_variable(machine, names, judge)

        return judge_all

    return register


def each_variable(machine: Machine, names: Sequence[str], judge: Judge) -> Iterator[Finding]:
    """A finding for each of these variables that is set; pass if none is.

    A setting of a network plugin that is there passes, unless NCCL stops because of it.
    """
    variables = settings(machine)
    present = [variables[name] for name in names if name in variables]
    if not present:
        none = f"{names[0]} is not set" if len(names) == 1 else "none of these variables is set"
        yield passed("", none)
    environment = {setting.name: setting.value for setting in variables.values()}
    environment |= machine.environment or {}
    for setting in present:
        finding = judge(machine, setting)
        plugin = plugin_with(setting.name, environment)
        if plugin and finding.verdict is Verdict.WARN:
            message = f"{setting.text} is a setting of {plugin} plugin"
            finding = passed(finding.subject, message, setting.evidence())
        yield finding


def is_machine_known(machine: Machine) -> bool:
    """Whether any fact of the machine was read: False for only a command line."""
    return machine.text("/proc/sys/kernel/hostname") is not None


def libraries(machine: Machine) -> tuple[nccl_libraries.LibraryFile, ...] | None:
    """The libraries of NCCL; None if they were not looked for."""
    text = machine.call(LIBRARIES_CALL, nccl_libraries.live).text
    return None if text is None else nccl_libraries.parse(text)


def version(machine: Machine) -> tuple[int, ...]:
    """NCCL's version if all libraries found have the same, like (2, 27, 7); else ()."""
    versions = {library.version for library in libraries(machine) or ()}
    only = versions.pop() if len(versions) == 1 else ""
    return tuple(int(part) for part in only.split(".")) if only else ()


@dataclass(frozen=True, slots=True)
class Selection:
    """The value of NCCL_IB_HCA or NCCL_SOCKET_IFNAME.

    `tokens` are its entries, without the part after a colon: port, rail and plane, which `ports`
    has for each, like `:2` or ''. They are `exact` names or prefixes, and select names or, if
    `excluded`, leave them out.
    """

    tokens: tuple[str, ...]
    ports: tuple[str, ...]
    exact: bool = False
    excluded: bool = False

    def matched(self, token: str, names: Iterable[str]) -> tuple[str, ...]:
        """Names that a token matches."""
        if self.exact:
            return tuple(name for name in names if name == token)
        return tuple(name for name in names if name.startswith(token))

    def named(self, names: Sequence[str]) -> tuple[str, ...]:
        """Names that some token matches."""
        matched = {name for token in self.tokens for name in self.matched(token, names)}
        return tuple(name for name in names if name in matched)

    def chosen(self, names: Sequence[str]) -> tuple[str, ...]:
        """Names that NCCL uses."""
        named = self.named(names)
        return tuple(name for name in names if name not in named) if self.excluded else named

    def unmatched(self, names: Sequence[str]) -> tuple[str, ...]:
        """Tokens that match none of the names."""
        return tuple(token for token in self.tokens if not self.matched(token, names))

    def too_wide(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Names that a token matches in addition to the one that it is, by token."""
        others = [name for name in names if name not in self.tokens]
        wide = {token: self.matched(token, others) for token in self.tokens if token in names}
        return {token: more for token, more in wide.items() if more}

    def spelled(self) -> str:
        """The value of the variable, with exact names."""
        entries = [token + port for token, port in zip(self.tokens, self.ports, strict=True)]
        return f"{'^' if self.excluded else ''}={','.join(entries)}"

    def restricted_to(self, names: Iterable[str]) -> str:
        """The value that selects, of what this one selects, these names alone."""
        entries = [
            name + port
            for name in names
            for token, port in zip(self.tokens, self.ports, strict=True)
            if self.matched(token, [name])
        ]
        return f"={','.join(dict.fromkeys(entries))}"


def parse_selection(text: str) -> Selection:
    """The selection; each entry of NCCL_IB_HCA may have a port after a colon."""
    excluded = text.startswith("^")
    names = text.removeprefix("^")
    exact = names.startswith("=")
    entries = [part.partition(":") for part in names.removeprefix("=").split(",") if part]
    return Selection(
        tuple(name for name, _, _ in entries),
        tuple(colon + port for _, colon, port in entries),
        exact,
        excluded,
    )
