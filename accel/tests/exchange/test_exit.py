"""A training that ends without close(), in a process of its own."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch

PROGRAM = """
import time
import torch
import torch.distributed as dist
import busbw_accel
from busbw_accel.mesh import make

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
settings = busbw_accel.Settings(method="int8")
worker = busbw_accel.CommWorker(settings, make(settings))
for number in range(2):
    worker.run(torch.zeros(1), lambda: time.sleep(0.2) or print("exchanged", flush=True))
print("the training has ended", flush=True)
"""


def test_an_exit_waits_for_the_exchanges_that_run():
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=True
    )
    assert ended.stdout.splitlines() == ["the training has ended", *["exchanged"] * 2]
