"""Threads of torch's operations on the host, in a rank that Open MPI started."""

import os
import subprocess
import sys

PROGRAM = """
import torch
from busbw.accel import host_threads
from busbw.launch.control import SoloControl
from busbw.train.job import share_processors

print(torch.get_num_threads())
with host_threads.torch_threads(host_threads.usable()):
    print(torch.get_num_threads())
print(torch.get_num_threads())
share_processors(SoloControl())
print(torch.get_num_threads())
"""


def threads(**variables: str) -> list[int]:
    env = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")} | variables
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=60, check=True)
    return [int(word) for word in done.stdout.split()]


def test_a_rank_of_mpirun_uses_all_processors() -> None:
    processors = len(os.sched_getaffinity(0))
    begun, inside, after, shared = threads(OMPI_COMM_WORLD_LOCAL_SIZE="1")  # with MKL, torch begins with one by this variable
    assert (inside, after, shared) == (min(processors, 16), begun, processors)


def test_omp_num_threads_stays() -> None:
    processors = len(os.sched_getaffinity(0))
    assert threads(OMP_NUM_THREADS="1") == [1, min(processors, 16), 1, 1]
