"""Joins the ranks of a job over the control channel that fits the launcher, and detects a split
brain.

In a split brain, N processes each believe they are rank 0 of 1, like a program built without MPI.
Each measures only itself, and the numbers look plausible.
"""

import logging
import os
import socket
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from busbw.core.errors import BusbwError, NoMeasurement
from busbw.core.program import install_hint
from busbw.launch import interfaces
from busbw.launch.control import Control, SoloControl
from busbw.launch.environment import Membership, detect

LOG = logging.getLogger(__name__)


def join(env: Mapping[str, str], *, expect: int | None) -> Control:
    """The channel to the other ranks of this job, chosen by the launcher's variables in `env`.

    `expect` is the requested number of ranks, if any. NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME of
    this process are set from BUSBW_IFNAME. NoMeasurement if the launcher, the library and `expect`
    disagree on the number of ranks, or if the library is missing.
    """
    member = detect(env)
    interfaces.set_interface_variables(env)
    control = _open(member)
    LOG.debug(
        "process %d of %d has joined (%s)",
        control.process,
        control.processes,
        type(control).__name__,
    )
    try:
        _refuse_split_brain(member, control, expect)
    except BusbwError:
        if control.processes == 1:
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
            install_hint(extra),
        )


def _refuse_split_brain(member: Membership | None, control: Control, expect: int | None) -> None:
    here = f"{socket.gethostname()}, process {os.getpid()}"
    library = str(getattr(control, "library", ""))
    if member is not None and control.processes != member.size:
        raise NoMeasurement(
            f"split brain on {here}: {member.launcher.name} started {member.size} ranks, but"
            f" {library} sees {control.processes}: each would measure only itself",
            _cure(member, library),
        )
    if expect is None or control.processes == expect:
        return
    if member is None:
        raise NoMeasurement(
            f"split brain on {here}: {expect} ranks expected, but no launcher gave this process a"
            " rank: it would measure only itself",
            f"let busbw start the ranks (busbw run ... -np {expect}), or mpirun -n {expect}, srun"
            f" --mpi=pmix -n {expect}, torchrun",
            options=["start_alone"],
        )
    raise NoMeasurement(
        f"{here}: {expect} ranks were requested, but {member.launcher.name} started"
        f" {control.processes}",
        f"ask for {control.processes} ranks, or start {expect}",
    )


def _cure(member: Membership, library: str) -> str:
    n = member.size
    if member.launcher.name == "Slurm":
        return (
            f"srun --mpi=pmix -n {n} ... (`srun --mpi=list` must name pmix), or start it with"
            " mpirun inside the allocation"
        )
    beside_python = Path(sys.executable).with_name("mpirun")
    mpirun = str(beside_python) if beside_python.exists() else "mpirun"
    if member.launcher.name == "MPICH" or "Open MPI" in library:
        return (
            f"{mpirun} -n {n} ...: the mpirun of the MPI that mpi4py uses ({library or 'unknown'})"
        )
    return (
        f"start it with the mpirun of {library}, or set the library of mpi4py:"
        " MPI4PY_LIBMPI=/path/to/libmpi.so"
    )
