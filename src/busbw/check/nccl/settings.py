"""NCCL's variables as a rank would get them: from the environment, then from the files that NCCL reads."""

import os
import pwd
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from busbw.check.base import no_environment, passed
from busbw.check.machine import Machine
from busbw.check.shell_words import assignment, filled, word
from busbw.check.types import Evidence, Found
from busbw.core.env import shown
from busbw.host import nccl_conf, nccl_libraries
from busbw.host.source import once

STAYS = "remove it from the job script, /etc/nccl.conf and ~/.nccl.conf"
READS = ("environment", nccl_conf.SYSTEM, "~/.nccl.conf")
LIBRARIES = "nccl-libraries"  # the call


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable with its value. `file` is where it is set, '' for the environment."""

    name: str
    value: str
    file: str = ""

    def evidence(self, expected: str = "") -> Evidence:
        """The value with its place."""
        return Evidence(f"{self.file}: {self.name}" if self.file else f"${self.name}", self.value, expected)

    @property
    def text(self) -> str:
        """`NAME=VALUE`."""
        return f"{self.name}={self.value}"

    @property
    def unset(self) -> str:
        """The command or change without the variable."""
        return filled("delete the line {text} from {file}", text=self.text, file=self.file) if self.file else f"unset {word(self.name)}"

    def to(self, value: str) -> str:
        """The command or change that gives it another value."""
        text = assignment(self.name, value)
        return f"write {text} in {word(self.file)}" if self.file else f"export {text}"


def files(machine: Machine) -> tuple[str, ...]:
    """Files that NCCL reads, in order of precedence; the environment precedes all."""
    home = machine.call("home", lambda: pwd.getpwuid(os.getuid()).pw_dir).text or ""
    own = nccl_conf.user_file((machine.environment or {}).get(nccl_conf.FILE_VARIABLE, ""), home)
    return (own, nccl_conf.SYSTEM) if own else (nccl_conf.SYSTEM,)


@once
def settings(machine: Machine) -> dict[str, Setting] | None:
    """Variables by name, those of NCCL, PyTorch, Gloo and CUDA; None if a snapshot has no environment. NCCL ignores empty values."""
    if machine.environment is None:
        return None
    found = {name: Setting(name, value) for name, value in machine.environment.items() if value}
    for path in files(machine):
        for line in nccl_conf.parse(machine.text(path) or ""):
            if line.value and line.name not in machine.environment:
                found.setdefault(line.name, Setting(line.name, shown(line.name, line.value), path))
    return found


def each(machine: Machine, names: tuple[str, ...], judge: Callable[[Machine, Setting], Found]) -> Iterator[Found]:
    """One finding for each variable that is set; pass if none is, unknown if the environment is unknown."""
    every = settings(machine)
    if every is None:
        yield no_environment()
        return
    present = [every[name] for name in names if name in every]
    if not present:
        yield passed("", f"{names[0]} is not set" if len(names) == 1 else "none of these variables is set")
    for setting in present:
        yield judge(machine, setting)


def known(machine: Machine) -> bool:
    """Whether any fact of the machine was read: False for only a command line."""
    return machine.text("/proc/sys/kernel/hostname") is not None


def libraries(machine: Machine) -> tuple[nccl_libraries.Library, ...] | None:
    """The libraries of NCCL; None if they were not looked for."""
    text = machine.call(LIBRARIES, nccl_libraries.live).text
    return None if text is None else nccl_libraries.parse(text)


def version(machine: Machine) -> tuple[int, ...]:
    """NCCL's version if all libraries found have the same, like (2, 27, 7); else ()."""
    found = {library.version for library in libraries(machine) or ()}
    only = found.pop() if len(found) == 1 else ""
    return tuple(int(part) for part in only.split(".")) if only else ()
