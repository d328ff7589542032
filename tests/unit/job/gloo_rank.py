"""A rank of a job that hangs: all but the last call a fourth all_reduce.

Writes its Flight Recorder dump to DUMPS.
"""

import os
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist


def hanging() -> None:
    """Never returns."""
    rank, value = dist.get_rank(), torch.ones(4)
    for _ in range(3):
        dist.all_reduce(value)
    if rank < dist.get_world_size() - 1:
        threading.Thread(target=lambda: dist.all_reduce(value), daemon=True).start()
    time.sleep(1)
    dump = Path(os.environ["DUMPS"], f"dump_rank_{rank}.pickle")
    dump.write_bytes(torch._C._distributed_c10d._dump_fr_trace(True, False, False))
    os._exit(0)
