"""Joining the ranks of a job: the control channel that fits the launcher, and the refusal of a split brain.

A split brain is N processes that each think they are rank 0 of 1, as a program built without MPI behaves: all measure themselves
alone, and every figure looks fine.
"""

import os
import socket
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from busbw.core.errors import BusbwError, NoMeasurement
from busbw.engines.base import Control
from busbw.launch import interfaces
from busbw.launch.environment import Membership, detect


class SoloControl:
    """The channel of a job of one process."""

    rank = 0
    size = 1

    def bcast(self, value: Any) -> Any:
        """The value."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """The value alone."""
        return [value]

    def allgather(self, value: Any) -> list[Any]:
        """The value alone."""
        return [value]

    def barrier(self) -> None:
        """Nobody to wait for."""

    def reduce_all(self, values: list[float], how: str) -> list[float]:
        """The values."""
        return list(values)

    def split(self, color: int) -> "SoloControl":
        """Itself."""
        return self

    def abort(self, code: int, reason: str) -> None:
        """Ends the process, as the others do, without running exit handlers."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def close(self) -> None:
        """Nothing to leave."""


def join(env: Mapping[str, str], *, expect: int | None) -> Control:
    """The channel to the other ranks of this job, chosen by what the launcher set in `env`; `expect` is the size asked for, if any.

    Also sets this process' NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME from BUSBW_IFNAME. NoMeasurement where the launcher, the library
    that joins the ranks and `expect` do not agree on how many there are, or where that library is missing.
    """
    member = detect(env)
    interfaces.settle(env)
    control = _open(member)
    try:
        _refuse_split_brain(member, control, expect)
    except BusbwError:
        if control.size == 1:
            control.close()
        raise
    return control


def _open(member: Membership | None) -> Control:
    if member is None:
        return SoloControl()
    if not member.launcher.mpi:
        _need("torch", member)
        from busbw.launch.control_torch import TorchControl

        return TorchControl.join(member)
    if member.size == 1 and not find_spec("mpi4py"):
        return SoloControl()
    _need("mpi4py", member)
    from busbw.launch.control_mpi import MpiControl

    return MpiControl.join()


def _need(module: str, member: Membership) -> None:
    if not find_spec(module):
        extra = "mpi" if module == "mpi4py" else module
        raise NoMeasurement(
            f"{module} is not installed on {socket.gethostname()}: "
            f"the {member.size} ranks that {member.launcher.name} started cannot find each other",
            f"{sys.executable} -m pip install 'busbw[{extra}]'",
        )


def _refuse_split_brain(member: Membership | None, control: Control, expect: int | None) -> None:
    here = f"{socket.gethostname()}, process {os.getpid()}"
    library = str(getattr(control, "library", ""))
    if member is not None and control.size != member.size:
        raise NoMeasurement(
            f"split brain on {here}: {member.launcher.name} started {member.size} ranks, but {library} sees {control.size}: "
            "each would measure itself alone",
            _cure(member, library),
        )
    if expect is None or control.size == expect:
        return
    if member is None:
        raise NoMeasurement(
            f"split brain on {here}: this is to be one of {expect} ranks, but no launcher gave it a rank: it would measure itself alone",
            f"let busbw start the ranks (busbw run ... -n {expect}), or mpirun -n {expect}, srun --mpi=pmix -n {expect}, torchrun",
        )
    raise NoMeasurement(
        f"{here}: {expect} ranks were asked for, but {member.launcher.name} started {control.size}",
        f"ask for {control.size} ranks, or start {expect}",
    )


def _cure(member: Membership, library: str) -> str:
    n = member.size
    if member.launcher.name == "Slurm":
        return f"srun --mpi=pmix -n {n} ... (`srun --mpi=list` must name pmix), or start it with mpirun inside the allocation"
    own = Path(sys.executable).with_name("mpirun")
    mpirun = str(own) if own.exists() else "mpirun"
    if member.launcher.name == "MPICH" or "Open MPI" in library:
        return f"{mpirun} -n {n} ...: the mpirun of the MPI that mpi4py uses ({library or 'unknown'})"
    return f"start it with the mpirun of {library}, or give mpi4py this one's: MPI4PY_LIBMPI=/path/to/libmpi.so"
