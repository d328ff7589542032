"""Which launcher started this process, and as which rank: read from the variables that each launcher sets, one row each."""

from collections.abc import Mapping
from dataclasses import dataclass

from busbw.core.errors import UsageError

# Slurm numbers its pseudo steps down from 2^32: batch script, extern and interactive shells are none of them a task of a job step.
_FIRST_PSEUDO_STEP = 0xFFFFFFF0


@dataclass(frozen=True, slots=True)
class Launcher:
    """The variables of one launcher; of each tuple the first one set counts. All of `requires` must be set as well."""

    name: str
    rank: str
    size: tuple[str, ...]
    local_rank: tuple[str, ...]
    mpi: bool  # whether ranks find each other through MPI
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Membership:
    """This process is `rank` of `size`, and `local_rank` (None where the launcher does not say) of its host."""

    launcher: Launcher
    rank: int
    size: int
    local_rank: int | None


# In order of nearness: what starts processes inside another launcher's step (torchrun under srun, mpirun under srun) comes first.
LAUNCHERS: tuple[Launcher, ...] = (
    Launcher("torchrun", "RANK", ("WORLD_SIZE",), ("LOCAL_RANK",), mpi=False, requires=("TORCHELASTIC_RUN_ID", "MASTER_ADDR")),
    Launcher("Open MPI", "OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), ("OMPI_COMM_WORLD_LOCAL_RANK",), mpi=True),
    Launcher("MPICH", "PMI_RANK", ("PMI_SIZE",), ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"), mpi=True),
    Launcher("Slurm", "SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ("SLURM_LOCALID",), mpi=True, requires=("SLURM_STEP_ID",)),
    Launcher("torch.distributed", "RANK", ("WORLD_SIZE",), ("LOCAL_RANK",), mpi=False, requires=("MASTER_ADDR",)),
)


def detect(env: Mapping[str, str]) -> Membership | None:
    """The rank that the launcher nearest to this process gave it, None for a plain process.

    A shell of salloc, sbatch or `srun --pty` is plain although Slurm sets a rank there. UsageError for values that cannot be meant.
    """
    for launcher in LAUNCHERS:
        size_name = next((name for name in launcher.size if env.get(name)), None)
        if size_name is None or not all(env.get(name) for name in (launcher.rank, *launcher.requires)):
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
            f"environment: {launcher.rank}={rank} is no rank of {size_name}={size}",
            f"unset both, or start every rank anew with {launcher.name}",
        )
    local_name = next((name for name in launcher.local_rank if env.get(name)), None)
    return Membership(launcher, rank, size, _integer(env, local_name) if local_name else None)


def _integer(env: Mapping[str, str], name: str) -> int:
    value = env[name]
    if not (value.isascii() and value.isdigit()):
        raise UsageError(f"environment: {name}='{value}' is not a number of 0 or more", f"unset {name}")
    return int(value)
