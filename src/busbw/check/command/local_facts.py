"""Facts of this machine for a line: its launcher if installed, its GPUs if ranks run here."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from busbw.check.command.line import HOSTFILES, Line
from busbw.check.command.options import LAUNCHERS
from busbw.check.examine import HOSTNAME
from busbw.check.launcher.programs import OpenMpi, open_mpi, shell_open_mpi
from busbw.check.machine import USER, Machine
from busbw.host import addresses


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
