"""What launchers and HOROVOD_* variables say."""

import math

import pytest

from busbw.core.errors import UsageError
from busbw_accel.horovod.torch import environment
from busbw_accel.horovod.torch.environment import RankInfo
from busbw_accel.horovod.torch.errors import Refused

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]

LAUNCHERS = {
    "horovodrun": {
        "HOROVOD_RANK": "3",
        "HOROVOD_SIZE": "4",
        "HOROVOD_LOCAL_RANK": "1",
        "HOROVOD_LOCAL_SIZE": "2",
    },
    "mpirun": {
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    },
    "mpiexec of MPICH": {
        "PMI_RANK": "3",
        "PMI_SIZE": "4",
        "MPI_LOCALRANKID": "1",
        "MPI_LOCALNRANKS": "2",
    },
    "torchrun": {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "a",
    },
}
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_ID": "0",
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_rank_info_of_each_launcher(launcher):
    assert environment.rank_info(LAUNCHERS[launcher]) == RankInfo(3, 4, 1, 2)


def test_ranks_of_srun_and_of_torchrun_inside_it():
    assert environment.rank_info(SLURM) == RankInfo(3, 4, 1)
    assert environment.rank_info({**SLURM, "SLURM_STEP_ID": str(0xFFFFFFFB)}) == RankInfo(
        0, 1, 0, 1, 0, 1
    ), "a batch script"
    inside = {**LAUNCHERS["torchrun"], "TORCHELASTIC_RUN_ID": "1", "RANK": "2"}
    assert environment.rank_info({**SLURM, "PMI_RANK": "0", "PMI_SIZE": "1", **inside}) == RankInfo(
        2, 4, 1, 2
    )


def test_horovods_variables_take_precedence():
    assert environment.rank_info(
        {**LAUNCHERS["torchrun"], "HOROVOD_RANK": "0", "HOROVOD_SIZE": "1"}
    ) == RankInfo(0, 1)


def test_a_process_without_launcher_is_rank_0_of_1():
    assert environment.rank_info({}) == RankInfo(0, 1, 0, 1, 0, 1)


def test_invalid_ranks_are_refused():
    with pytest.raises(UsageError, match="RANK=4 is not a rank of WORLD_SIZE=4"):
        environment.rank_info({**LAUNCHERS["torchrun"], "RANK": "4"})
    with pytest.raises(Refused, match="HOROVOD_RANK=4 is not a rank of HOROVOD_SIZE=4"):
        environment.rank_info({"HOROVOD_RANK": "4", "HOROVOD_SIZE": "4"})
    with pytest.raises(Refused, match="RANK=3 and WORLD_SIZE=4 are set without MASTER_ADDR"):
        environment.rank_info({"RANK": "3", "WORLD_SIZE": "4"})
    with pytest.raises(Refused, match="HOROVOD_SIZE= is not a number"):
        environment.rank_info({"HOROVOD_RANK": "0"})


def test_the_meeting_point_comes_from_the_launcher():
    horovod = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "b", "HOROVOD_GLOO_RENDEZVOUS_PORT": "2"}
    assert environment.meeting_point({"MASTER_ADDR": "a", "MASTER_PORT": "1", **horovod}) == (
        "a",
        1,
    )
    assert environment.meeting_point(horovod) == ("b", 2)
    assert environment.meeting_point({"MASTER_ADDR": "a"}) is None


def test_defaults():
    options = environment.read_options({})
    assert (options.fusion, options.cycle_s, options.cache) == (128 << 20, 1e-3, 1024)
    assert (options.stall_warn_s, options.stall_fail_s, options.timeout_s) == (60, math.inf, 120)
    assert not (
        options.timeline
        or options.mark_cycles
        or options.dynamic_sets
        or options.two_d
        or options.always_reduce
    )


def test_settings():
    options = environment.read_options(
        {
            "HOROVOD_STALL_CHECK_DISABLE": "1",
            "HOROVOD_CYCLE_TIME": "2.5",
            "HOROVOD_TIMELINE": "DYNAMIC",
        }
    )
    assert (options.stall_warn_s, options.cycle_s, options.timeline) == (math.inf, 2.5e-3, "")


@pytest.mark.parametrize(
    "name", [setting.name for setting in environment.SETTINGS if setting.read is not str]
)
def test_invalid_values_are_refused(name):
    with pytest.raises(Refused, match=f"{name}=much is invalid") as raised:
        environment.read_options({name: "much"})
    assert raised.value.hint.startswith("give ")


def test_variables_without_effect_are_named():
    environ = {
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_LOG_LEVEL": "debug",
        "HOROVOD_NUM_NCCL_STREAMS": "0",
        "HOROVOD_CONTROLLER": "gloo",
    }
    assert environment.unsupported_variables({**environ, "HOROVOD_RANK": "0", "PATH": "/"}) == [
        "HOROVOD_AUTOTUNE",
        "HOROVOD_LOG_LEVEL",
    ]
    assert environment.unsupported_variables(
        {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_ELASTIC_TIMEOUT": "60"}
    ) == ["HOROVOD_CONTROLLER"]
