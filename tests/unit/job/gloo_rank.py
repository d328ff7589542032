"""A rank of a job that hangs: all but the last call a fourth all_reduce. RANK WORLD STORE FOLDER; writes its Flight Recorder dump."""

import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

RANK, WORLD, STORE, FOLDER = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
dist.init_process_group("gloo", init_method=f"file://{STORE}", rank=RANK, world_size=WORLD, timeout=timedelta(seconds=60))
value = torch.ones(4)
for _ in range(3):
    dist.all_reduce(value)
late = RANK == WORLD - 1
if not late:
    threading.Thread(target=lambda: dist.all_reduce(value), daemon=True).start()
time.sleep(1)
(FOLDER / f"dump_rank_{RANK}.pickle").write_bytes(torch._C._distributed_c10d._dump_fr_trace(True, False, False))
os._exit(0)
