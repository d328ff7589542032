"""How long exchanges with `staging=host` take if ranks start at different times:
`exchange_stalls.py [STEPS]`.

Run on each host by gpu_hosts.py, with the variables of torchrun, on CPUs. A step exchanges what
PowerSGD sends of GPT-2's embedding at rank 16: P, then W, each rank up to SKEW_S late. Prints the
steps that took at least five times the median, in ms.
"""

import os
import random
import statistics
import sys
import time

import torch
import torch.distributed as dist

from busbw_accel.mesh import make
from busbw_accel.settings import Settings

STEPS, SKEW_S = 4000, 0.001
BYTES = (51_281 * 16 * 4, 2 * 768 * 16 * 4)


def main(count: int) -> None:
    """Rank 0 prints."""
    dist.init_process_group("gloo")
    staging = make(Settings(method="int8", staging="host")).world.staging
    assert staging is not None, "two ranks at least"
    rooms = [
        (torch.zeros(2, size, dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8))
        for size in BYTES
    ]
    taken = []
    for _ in range(count):
        begun = time.perf_counter()
        for every, own in rooms:
            time.sleep(random.random() * SKEW_S)
            staging.all_gather(every, own)
        taken.append(1e3 * (time.perf_counter() - begun))
    if dist.get_rank() == 0:
        usual, high = statistics.median(taken), statistics.quantiles(taken, n=100)[-1]
        long = " ".join(
            f"{number}: {one:.0f}" for number, one in enumerate(taken) if one >= 5 * usual
        )
        print(
            f"{count} steps: median {usual:.2f} ms, 99 % {high:.2f}, longest {max(taken):.1f};"
            f" stalls: {long or 'none'}",
            flush=True,
        )
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else STEPS)
