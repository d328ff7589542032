"""What the recorder costs a training that is watched: blocks of steps with and without it, in turn,
in one process, so that the differences of runs do not hide it.

    busbw capture --output OUT -- torchrun --nproc-per-node 2 watch_job_cost.py 200
    busbw watch job OUT                          beside it

Prints on rank 0 how much longer a step is in the blocks with the recorder, with an interval at 95 %
over pairs of blocks, and how much of a CPU the thread that writes used in these blocks. Without
the recorder, no file is written; the hooks stay.
"""

import gc
import math
import os
import sys
import time
from collections.abc import Callable
from statistics import fmean, stdev
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 40  # of a block
WARM = 5  # of them are left out
WIDTH, BATCH = 384, 64
CALLS = 20_000  # before: a full buffer of the Flight Recorder, as of a long training


def training() -> Callable[[], None]:
    """A step of some 30 ms on a core, or of a few on a GPU."""
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(6)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(BATCH, WIDTH, device=device)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return step


def the_recorder() -> Any:
    """That of busbw capture: its module may have lost its name to another sitecustomize."""
    return next(one for one in gc.get_objects() if type(one).__name__ == "Recorder")


def set_recording(recorder: Any, on: bool) -> None:
    """Let the recorder write, or not."""
    for name in ("_write_now", "write"):
        if on:
            recorder.__dict__.pop(name, None)
        else:
            setattr(recorder, name, lambda **_: None)


def block_s(step: Callable[[], None]) -> float:
    """The mean step of a block."""
    for _ in range(WARM):
        step()
    dist.barrier()
    began_s = time.perf_counter()
    for _ in range(STEPS - WARM):
        step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    dist.barrier()
    return (time.perf_counter() - began_s) / (STEPS - WARM)


def writer_s(recorder: Any) -> float:
    """CPU seconds of the thread that writes."""
    return time.clock_gettime(time.pthread_getcpuclockid(recorder._writer.ident))


def main(pairs: int) -> None:
    """Run pairs of blocks, each in a random order that all ranks share."""
    torch.set_num_threads(1)
    if torch.cuda.is_available():
        os.environ.setdefault("NCCL_HOSTID", f"rank{os.environ['RANK']}")
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    step, recorder = training(), the_recorder()
    small = torch.zeros(4, device="cuda" if torch.cuda.is_available() else "cpu")
    for _ in range(CALLS):
        dist.all_reduce(small)
    order = torch.Generator().manual_seed(1)
    ratios, without_s, used_s, on_s = [], [], 0.0, 0.0
    for _ in range(pairs):
        first = bool(torch.randint(2, (1,), generator=order))
        seconds = {}
        for on in (first, not first):
            set_recording(recorder, on)
            began_s, writer_began_s = time.perf_counter(), writer_s(recorder)
            seconds[on] = block_s(step)
            if on:
                on_s += time.perf_counter() - began_s
                used_s += writer_s(recorder) - writer_began_s
        ratios.append(math.log(seconds[True] / seconds[False]))
        without_s.append(seconds[False])
    set_recording(recorder, True)
    if dist.get_rank() == 0:
        longer, half = 100 * fmean(ratios), 196 * stdev(ratios) / math.sqrt(pairs)
        blocks = f"{pairs} pairs of blocks of {STEPS} steps of {1e3 * fmean(without_s):.2f} ms"
        interval = f"{longer - half:.2f} to {longer + half:.2f} %"
        print(f"{blocks}: longer by {longer:.2f} % ({interval})", flush=True)
        print(f"the thread that writes used {100 * used_s / on_s:.3f} % of a CPU", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
