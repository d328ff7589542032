"""Threads of torch's operations on the host, in a rank that Open MPI started."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from busbw.launch.control import SoloControl

PROGRAM = """
import torch
from busbw_accel import host_adam as host_threads
from busbw.launch.control import SoloControl
from busbw_accel.train.job import share_processors

print(torch.get_num_threads())
with host_threads.torch_threads(host_threads.usable()):
    print(torch.get_num_threads())
print(torch.get_num_threads())
share_processors(SoloControl())
print(torch.get_num_threads())
"""


def threads(**variables: str) -> list[int]:
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    } | variables
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return [int(word) for word in result.stdout.split()]


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_a_rank_of_mpirun_uses_all_processors() -> None:
    processors = len(os.sched_getaffinity(0))
    # with MKL, torch begins with one by this variable
    begun, inside, after, shared = threads(OMPI_COMM_WORLD_LOCAL_SIZE="1")
    assert (inside, after, shared) == (min(processors, 16), begun, processors)


def test_omp_num_threads_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from busbw_accel import host_adam
    from busbw_accel.train.job import share_processors

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # as torch begins with that variable, and after this test as before
    with host_adam.torch_threads(1):
        with host_adam.torch_threads(host_adam.usable()):
            assert torch.get_num_threads() == min(len(os.sched_getaffinity(0)), 16)
        share_processors(SoloControl())
        assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("own_affinity", "other_ranks", "threads"),
    [
        (("a", [0, 1, 2, 3]), [], 4),
        # `b` is another machine
        (("a", [0, 1, 2, 3]), [("a", [0, 1, 2, 3]), ("b", [0, 1, 2, 3])], 2),
        (("a", [0, 1]), [("a", [0, 1])] * 3, 1),  # four containers on two cores
        (("a", [0]), [("a", [1])], 1),
        (("a", [0, 1, 2, 3]), [("a", [2, 3])], 3),
        (("a", [0, 1, 2]), [("a", [0, 1, 2])] * 2, 1),
    ],
)
def test_each_rank_of_a_machine_gets_its_share_of_the_cores(
    own_affinity, other_ranks, threads
) -> None:
    from busbw_accel.train.job import share_of

    assert share_of(own_affinity, [own_affinity, *other_ranks]) == threads
