"""What Python adds to one NCCL call: the nccl engine's thunks alternate with a C loop, in the same
process, on the same communicator.

Prints microseconds for every rank: enqueueing one operation, and the whole loop of 20 until the GPU
    is idle, each the median of 60 loops of
all_reduce, float sum, 1 KiB. Several rounds, because the cores of a shared machine change speed
    from one second to the next. Needs gcc:
  mpirun -np 2 --bind-to none python3 benchmarks/enqueue_cost.py
"""

import ctypes
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

from busbw.core.sweep import SweepSpec, series
from busbw.engines import nccl_comms
from busbw.engines.nccl import NcclEngine
from busbw.launch.rendezvous import join
from busbw.measure.plan import Calls

ITERS, LOOPS, ROUNDS, BYTES = 20, 60, 6, 1024
SOURCE = r"""
#include <time.h>
#include <stddef.h>
typedef int (*reduce_t)(const void *, void *, size_t, int, int, void *, void *);
typedef int (*query_t)(void *);
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}
int loop(reduce_t reduce, query_t query, char *send, char *recv, size_t count, void *comm,
         void *stream, int n, double *seen) {
  double start = now();
  for (int i = 0; i < n; i++)
    if (reduce(send + i * count * 4, recv + i * count * 4, count, 7, 0, comm, stream)) return 1;
  double enqueued = now();
  while (query(stream) == 600) {}
  seen[0] = (enqueued - start) / n;
  seen[1] = (now() - start) / n;
  return 0;
}
"""


def built() -> ctypes.CDLL:
    """The C loop."""
    compiler = shutil.which("gcc")
    if compiler is None:
        sys.exit("gcc is not on PATH")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "loop.c"), Path(folder, "loop.so")
        source.write_text(SOURCE, encoding="ascii")
        subprocess.run(
            [compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(library)], check=True
        )
        return ctypes.CDLL(str(library))


def loaded(name: str) -> ctypes.CDLL:
    """A library that this process has loaded already."""
    maps = Path("/proc/self/maps").read_text(encoding="ascii").split()
    return ctypes.CDLL(next(word for word in maps if Path(word).name.startswith(name)))


def main() -> None:
    """Run both in turn and print what every rank saw."""
    control = join(dict(os.environ), expect=2)
    spec = SweepSpec(collective="all_reduce")
    engine = NcclEngine(control, spec, [control.process])
    engine.allocate(ITERS * BYTES, ITERS * BYTES)
    calls = Calls(spec, next(series(spec, 2)), 2)
    places = [
        engine.bind(calls.at(BYTES, in_place=False, shift_bytes=BYTES * i)) for i in range(ITERS)
    ]
    lib, seen, nccl, cuda = (
        built(),
        (ctypes.c_double * 2)(),
        loaded("libnccl.so"),
        loaded("libcuda.so"),
    )
    send, recv = engine._buffers.pairs[0]
    pointers = (send, recv, BYTES // 4, int(engine._comms[0].handle), engine._streams[0].handle)
    arguments = [*map(ctypes.c_void_p, pointers), ctypes.c_int(ITERS), seen]

    def in_c() -> tuple[float, float]:
        if lib.loop(nccl.ncclAllReduce, cuda.cuStreamQuery, *arguments):
            sys.exit(f"NCCL failed: {nccl_comms.library().get_last_error(engine._comms[0])}")
        return seen[0], seen[1]

    def in_python() -> tuple[float, float]:
        start = time.perf_counter()
        for launch in islice(cycle(places), ITERS):
            launch()
        enqueued = time.perf_counter()
        engine.synchronize(0)
        return (enqueued - start) / ITERS * 1e6, (time.perf_counter() - start) / ITERS * 1e6

    ways = {"C": in_c, "busbw": in_python}
    for number in range(ROUNDS + 1):
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(LOOPS):
            for name, way in ways.items():
                control.barrier()
                runs[name].append(way())
        every = control.gather(
            {
                name: [statistics.median(column) for column in zip(*loops, strict=True)]
                for name, loops in runs.items()
            }
        )
        if every and number:  # the first round warms up
            for rank, medians in enumerate(every):
                words = "   ".join(
                    f"{name}: enqueue {each[0]:5.2f} us, whole {each[1]:5.2f} us"
                    for name, each in medians.items()
                )
                print(f"round {number} rank {rank}   {words}", flush=True)
    engine.close()
    control.close()


if __name__ == "__main__":
    main()
