"""A rank is detected from the variables of its launcher; a shell in an allocation is not a rank."""

import pytest

from busbw.core.errors import UsageError
from busbw.launch.environment import LAUNCHERS, detect

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "PMIX_RANK": "3",
}
HYDRA = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0"}
TASK = {
    "SLURM_JOB_ID": "9",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "16",
    "SLURM_LOCALID": "5",
}
TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "h1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
}
PYTORCH_JOB = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "h1"}


@pytest.mark.parametrize(
    ("env", "launcher", "position"),
    [
        (OPEN_MPI, "Open MPI", (3, 8, 1)),
        (HYDRA, "MPICH", (2, 4, 0)),
        (TASK, "Slurm", (5, 16, 5)),
        (TORCHRUN, "torchrun", (1, 2, 1)),
        (PYTORCH_JOB, "torch.distributed", (1, 2, None)),
        ({**TASK, **OPEN_MPI}, "Open MPI", (3, 8, 1)),
        ({**TASK, **TORCHRUN}, "torchrun", (1, 2, 1)),
        ({**PYTORCH_JOB, **OPEN_MPI}, "Open MPI", (3, 8, 1)),
    ],
)
def test_the_nearest_launcher_gives_the_rank(env, launcher, position):
    member = detect(env)
    assert member is not None
    assert member.launcher.name == launcher
    assert (member.rank, member.size, member.local_rank) == position


@pytest.mark.parametrize(
    "env",
    [
        {},
        # salloc or sbatch, no step
        {"SLURM_JOB_ID": "9", "SLURM_NTASKS": "16", "SLURM_PROCID": "0"},
        {**TASK, "SLURM_STEP_ID": "4294967291"},  # batch script
        {**TASK, "SLURM_STEP_ID": "4294967290"},  # salloc's interactive step
        {**TASK, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},  # srun --pty bash
        {"RANK": "0", "WORLD_SIZE": "2"},  # no address for the rendezvous
        {"OMPI_COMM_WORLD_RANK": "0"},
    ],
)
def test_a_plain_process_is_not_a_rank(env):
    assert detect(env) is None


def test_slurm_ntasks_is_used_without_a_step_size():
    env = {name: value for name, value in TASK.items() if name != "SLURM_STEP_NUM_TASKS"} | {
        "SLURM_NTASKS": "6"
    }
    member = detect(env)
    assert member is not None
    assert member.size == 6


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("OMPI_COMM_WORLD_RANK", "x", "OMPI_COMM_WORLD_RANK='x' is not a non-negative integer"),
        ("OMPI_COMM_WORLD_SIZE", "-1", "OMPI_COMM_WORLD_SIZE='-1' is not a non-negative integer"),
        (
            "OMPI_COMM_WORLD_RANK",
            "8",
            "OMPI_COMM_WORLD_RANK=8 is not a rank of OMPI_COMM_WORLD_SIZE=8",
        ),
    ],
)
def test_invalid_launcher_variables_are_named(name, value, words):
    with pytest.raises(UsageError, match=words) as caught:
        detect({**OPEN_MPI, name: value})
    assert caught.value.hint


def test_names_are_unique():
    assert len({row.name for row in LAUNCHERS}) == len(LAUNCHERS)
