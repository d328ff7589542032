"""Detects which launcher started this process, from the variables that each launcher sets."""

from collections.abc import Mapping
from dataclasses import dataclass

from busbw.core.errors import UsageError

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
