"""Ranks of a job that hangs: all but the last call a fourth all_reduce. WORLD STORE FOLDER; each writes its Flight Recorder dump.

They are forked from one process: importing PyTorch takes longer than all else.
"""

import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

WORLD, STORE, FOLDER = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])


def rank(number: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{STORE}", rank=number, world_size=WORLD, timeout=timedelta(seconds=60))
    value = torch.ones(4)
    for _ in range(3):
        dist.all_reduce(value)
    if number < WORLD - 1:
        threading.Thread(target=lambda: dist.all_reduce(value), daemon=True).start()
    time.sleep(1)
    (FOLDER / f"dump_rank_{number}.pickle").write_bytes(torch._C._distributed_c10d._dump_fr_trace(True, False, False))


def forked(number: int) -> int:
    """The process of a rank, which ends without waiting for its thread."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        rank(number)
        code = 0
    finally:
        os._exit(code)


started = [forked(number) for number in range(WORLD)]
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in started))
