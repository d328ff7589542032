"""What busbw adds to MPI's own time: the mpi engine's classic loop alternates with a bare mpi4py
loop in one run of two ranks.

`python benchmarks/mpi_overhead.py [FILE.json]` starts the ranks itself and prints a table; the
ratio is the median over pairs.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

SIZES = [8 << (3 * i) for i in range(8)]  # 8 B to 16 MiB
PAIRS = 41
LIMIT_S = 300


def bare(comm, send, recv, iters: int) -> float:
    """Seconds per operation of the shortest loop one would write."""
    from mpi4py import MPI

    comm.Allreduce(send, recv, MPI.SUM)
    comm.Barrier()
    start = time.perf_counter()
    for _ in range(iters):
        comm.Allreduce(send, recv, MPI.SUM)
    own = (time.perf_counter() - start) / iters
    return comm.allreduce(own) / comm.size


def ours(engine, control, launch, spec) -> float:
    """Seconds per operation as `busbw run --engine mpi` takes them."""
    from busbw.measure import timing

    launch()
    return timing.over_ranks(control, timing.run(engine, control, [launch], spec).time_s, 1)


def rank() -> None:
    """One of the two ranks; rank 0 prints the rows as JSON."""
    from mpi4py import MPI

    from busbw.core.sweep import Series, SweepSpec
    from busbw.engines.mpi import MpiEngine
    from busbw.launch.rendezvous import join
    from busbw.measure.plan import Calls

    control = join(dict(os.environ), expect=2)
    comm = control.comm
    rows = []
    for size in SIZES:
        iters = max(20, min(2000, int(2e7 / max(size, 10_000))))
        engine = MpiEngine(comm, comm.rank, 0)
        engine.allocate(size, size)
        spec = SweepSpec(
            collective="all_reduce", min_bytes=size, max_bytes=size, iters=iters, check=0
        )
        call = Calls(spec, Series("float", "sum", -1), comm.size).at(size, in_place=False)
        launch = engine.bind(call)
        # The same memory for both: where a buffer lies in its page moves MPI's time more than any
        # loop around it.
        send, recv = ([engine.view(call, name), size // 4, MPI.FLOAT] for name in ("send", "recv"))
        pairs = []
        for number in range(PAIRS):
            both = [
                partial(bare, comm, send, recv, iters),
                partial(ours, engine, control, launch, spec),
            ]
            first = number % 2  # neither always goes first
            times = [0.0, 0.0]
            for which in (first, 1 - first):
                times[which] = both[which]()
            pairs.append(times)
        engine.close()
        rows.append({"size_bytes": size, "iters": iters, "pairs_s": pairs})
    if comm.rank == 0:
        print(json.dumps(rows))
    control.close()


def report(rows: list[dict]) -> str:
    """The table of medians and of the middle half of the ratios."""
    lines = [
        f"{'size':>10}  {'bare us':>9}  {'busbw us':>9}  {'ratio':>6}  middle half of the ratios"
    ]
    for row in rows:
        ratios = sorted(after / before for before, after in row["pairs_s"])
        quarter = len(ratios) // 4
        medians = [1e6 * statistics.median(pair[i] for pair in row["pairs_s"]) for i in (0, 1)]
        middle = f"{ratios[quarter]:.3f} to {ratios[-quarter - 1]:.3f}"
        lines.append(
            f"{row['size_bytes']:>10}  {medians[0]:>9.2f}  {medians[1]:>9.2f} "
            f" {statistics.median(ratios):>6.3f}  {middle}"
        )
    return "\n".join(lines)


def main() -> int:
    """Start the ranks, print the table and write the pairs to the file, if given."""
    from busbw.launch import mpirun

    argv = mpirun.command(mpirun.find(), [sys.executable, __file__, "--rank"], 2)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        sys.stderr.write(done.stderr)
        return 3
    rows = json.loads(done.stdout.replace("\0", ""))
    print(report(rows))
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(rank() if "--rank" in sys.argv else main())
