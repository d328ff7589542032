"""A log's settings of NCCL: what NCCL's own lines and the kept command state."""

import pytest
from test_nccl_connections import log_result, said

from busbw.measure.formats import nccl_settings

RING = {"NCCL_ALGO": "Ring"}
HCA = {"NCCL_IB_HCA": "mlx5_0,mlx5_1"}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("mpirun -np 8 -x NCCL_ALGO=Ring ./build/all_reduce_perf -b 8M", RING),
        ("        -x NCCL_ALGO=Ring \\", RING),
        ("NCCL_ALGO=Ring CUDA_VISIBLE_DEVICES=0,1 ./build/all_reduce_perf -g 2", RING),
        ("root@h1:~# NCCL_ALGO=Ring ./all_reduce_perf -g 2", RING),
        ("# NCCL_ALGO=Ring LD_LIBRARY_PATH=/x ./all_reduce_perf -g 2", RING),
        ("export NCCL_ALGO='Ring'", RING),
        ("env NCCL_ALGO=Ring srun -n 8 all_reduce_perf", RING),
        (r"mpirun -x NCCL_IB_HCA=mlx5_0\,mlx5_1 all_reduce_perf", HCA),
        ("h1:1:1 [0] NCCL INFO NCCL_ALGO set by environment to Ring.", RING),
        ("# export NCCL_ALGO=Ring", {}),
        ("with NCCL_ALGO=Ring it is slower", {}),
        ("NCCL_ALGO=Ring is slower", {}),
    ],
)
def test_commands_and_nccls_lines_are_settings_comments_and_prose_are_not(
    line: str, found: dict[str, str]
) -> None:
    assert nccl_settings.environment(f"some text\n{line}\nmore text\n") == found


def test_nccls_own_line_decides() -> None:
    log = "mpirun -x NCCL_ALGO=Tree all_reduce_perf\n" + said(
        "NCCL_ALGO set by environment to Ring"
    )
    assert nccl_settings.environment(log) == RING


@pytest.mark.parametrize(
    ("message", "nvls"),
    [
        ("NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)", True),
        ("NVLS multicast support is not available on dev 0", False),
        ("24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels", False),
        ("16 coll channels, 16 nvls channels, 16 p2p channels, 2 p2p channels per peer", True),
        ("Connected all rings", None),
    ],
)
def test_a_log_says_whether_the_switches_could_reduce(message: str, nvls: bool | None) -> None:
    result = log_result(said(message))
    assert result.nvls is nvls
