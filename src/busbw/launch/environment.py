"""Detects which launcher started this process, and joins the ranks of its job.

`detect` reads the variables that each launcher sets. `join` opens the control channel that fits the
launcher, and refuses a split brain: N processes that each believe they are rank 0 of 1, like a
program built without MPI. Each would measure only itself, and the numbers would look plausible.
"""

import logging
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from busbw.core.errors import BusbwError, NoMeasurement, UsageError
from busbw.launch import interfaces
from busbw.launch.control import Control, SoloControl

LOG = logging.getLogger(__name__)

# Slurm numbers its pseudo steps (batch script, extern, interactive shell) down from 2^32. They are
# not job steps.
_FIRST_PSEUDO_STEP = 0xFFFFFFF0


@dataclass(frozen=True, slots=True)
class Launcher:
    """The variables of one launcher.

    The first set variable of each tuple is used. All of `requires` must be set too.
    """

    name: str
    rank: str
    size: tuple[str, ...]
    local_rank: tuple[str, ...]
    mpi: bool  # whether ranks find each other through MPI
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Membership:
    """This process is rank `rank` of `size`, and rank `local_rank` of its host.

    `local_rank` is None if the launcher does not set it.
    """

    launcher: Launcher
    rank: int
    size: int
    local_rank: int | None


# Launchers that can run inside another launcher's step (torchrun or mpirun under srun) come first.
LAUNCHERS: tuple[Launcher, ...] = (
    Launcher(
        "torchrun",
        "RANK",
        ("WORLD_SIZE",),
        ("LOCAL_RANK",),
        mpi=False,
        requires=("TORCHELASTIC_RUN_ID", "MASTER_ADDR"),
    ),
    Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        mpi=True,
    ),
    Launcher("MPICH", "PMI_RANK", ("PMI_SIZE",), ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"), mpi=True),
    Launcher(
        "Slurm",
        "SLURM_PROCID",
        ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        ("SLURM_LOCALID",),
        mpi=True,
        requires=("SLURM_STEP_ID",),
    ),
    Launcher(
        "torch.distributed",
        "RANK",
        ("WORLD_SIZE",),
        ("LOCAL_RANK",),
        mpi=False,
        requires=("MASTER_ADDR",),
    ),
)


def detect(env: Mapping[str, str]) -> Membership | None:
    """The rank that the innermost launcher gave this process; None without a launcher.

    Shells of salloc, sbatch and `srun --pty` count as without a launcher, although Slurm sets a
    rank there. Raises UsageError for invalid values.
    """
    for launcher in LAUNCHERS:
        size_name = next((name for name in launcher.size if env.get(name)), None)
        required = (launcher.rank, *launcher.requires)
        if size_name is None or not all(env.get(name) for name in required):
            continue
        if launcher.name == "Slurm" and not _is_task(env, size_name):
            continue
        return _membership(launcher, size_name, env)
    return None


def _is_task(env: Mapping[str, str], size_name: str) -> bool:
    return _integer(env, "SLURM_STEP_ID") < _FIRST_PSEUDO_STEP and _integer(env, size_name) > 1


def _membership(launcher: Launcher, size_name: str, env: Mapping[str, str]) -> Membership:
    rank, size = _integer(env, launcher.rank), _integer(env, size_name)
    if rank >= size:
        raise UsageError(
            f"environment: {launcher.rank}={rank} is not a rank of {size_name}={size}",
            f"unset both, or start all ranks again with {launcher.name}",
        )
    local_name = next((name for name in launcher.local_rank if env.get(name)), None)
    return Membership(launcher, rank, size, _integer(env, local_name) if local_name else None)


def _integer(env: Mapping[str, str], name: str) -> int:
    value = env[name]
    if not (value.isascii() and value.isdigit()):
        raise UsageError(
            f"environment: {name}='{value}' is not a non-negative integer", f"unset {name}"
        )
    return int(value)


def join(env: Mapping[str, str], *, expect: int | None) -> Control:
    """The channel to the other ranks of this job, chosen by the launcher's variables in `env`.

    `expect` is the requested number of ranks, if any. NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME of
    this process are set from BUSBW_IFNAME. NoMeasurement if the launcher, the library and `expect`
    disagree on the number of ranks, or if the library is missing.
    """
    member = detect(env)
    interfaces.settle(env)
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
            f"{sys.executable} -m pip install 'busbw[{extra}]'",
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
            f"let busbw start the ranks (busbw run ... -n {expect}), or mpirun -n {expect}, srun"
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
