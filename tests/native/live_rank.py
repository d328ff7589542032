"""A rank of a training whose calls the plugin records: the table v5 called as NCCL calls it, with
the driver of fake_libcuda.c.

It reads commands from stdin and answers each with `ok`: `steps N LATE_US` makes so many steps, in
which the rank computes that much longer and the others wait for it; `call FUNC COUNT` makes a call,
`launch FUNC COUNT` one that does not end on the GPU; `end` ends its communicators; `exit`.
"""

import os
import sys
import time
from pathlib import Path

from nccl_launches import STREAM, Communicator, Gpu
from nccl_profiler import P2P, Profiler

STEP_US = 1000.0
LATE_US = 400.0  # of the rank that RANK_LATE names
CALL_US = 50.0


class Rank:
    def __init__(self, library: str, version: int) -> None:
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.gpu = Gpu()
        self.profiler = Profiler(Path(library), version)
        number = int(os.environ.get("COMM", "0"))
        self.comm = Communicator(self.profiler, self.gpu, number, self.rank, self.world)

    def steps(self, steps: str, late_rank: str = "-1") -> None:
        """A step: compute, three calls, of which the first waits for the late rank."""
        for number in range(int(steps)):
            late_us = LATE_US if self.rank == int(late_rank) else 0.0
            waits_us = 0.0 if self.rank == int(late_rank) or int(late_rank) < 0 else LATE_US
            jitter_us = (number * 7 + self.rank * 3) % 11
            self.gpu.run(STREAM, 1000 * (STEP_US + late_us + jitter_us))
            self.comm.collective(b"AllReduce", 1024, 1000 * (CALL_US + waits_us + 11 - jitter_us))
            self.comm.collective(b"ReduceScatter", 512, 1000 * CALL_US)
            self.comm.collective(b"AllGather", 512, 1000 * CALL_US)
            if number % 100 == 99:
                time.sleep(0.02)  # the writer reads what has ended

    def call(self, func: str, count: str) -> None:
        self.comm.collective(func.encode(), int(count), 1000 * CALL_US)

    def launch(self, func: str, count: str) -> None:
        self.gpu.library.fake_hold(1)
        self.call(func, count)

    def pass_on(self, func: str, peer: str) -> None:
        with self.comm.group() as group:
            api = self.comm.call(group, func.encode(), 64)
            body = {"func": func.encode(), "count": 64, "datatype": b"ncclFloat32"}
            task = self.profiler.start(self.comm.context, P2P, api, peer=int(peer), **body)
            self.profiler.stop(task)

    def end(self) -> None:
        self.profiler.finalize(self.comm.context)


def main() -> None:
    rank = Rank(sys.argv[1], int(sys.argv[2]))
    print("ok", flush=True)
    for line in sys.stdin:
        name, *arguments = line.split()
        if name == "exit":
            break
        getattr(rank, name)(*arguments)
        print("ok", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
