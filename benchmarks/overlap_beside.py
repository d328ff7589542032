"""How much all_reduce and a product of matrices slow each other down, by PyTorch alone, and both
held against a result of `busbw overlap`.

    torchrun --nproc-per-node 2 overlap_beside.py time OUT.json
    overlap_beside.py compare BUSBW.json OUT.json...

Each side is a CUDA graph of some operations on a stream of its own. A side is timed by events
around each replay while the other side's graph is replayed all the time, and likewise alone: the
median over replays, the longest over ranks, per operation. Nothing of busbw is imported.
"""

import json
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = [1 << power for power in (20, 22, 24, 26, 28)]
SIDE = 4096
GRAPH_S, RUN_S = 2e-3, 0.06  # a graph takes about so long, and its replays together
WARM_S = 0.3  # of the device before the first figure
ALLOWED = 0.03


class Side:
    """Some operations in a graph, on a stream."""

    def __init__(self, operation: Callable[[], object]) -> None:
        import torch

        self.stream = torch.cuda.Stream()
        once_s = self._once_s(operation)
        self.operations = max(round(GRAPH_S / once_s), 1)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            for _ in range(self.operations):
                operation()

    def _once_s(self, operation: Callable[[], object]) -> float:
        """The time of one, the same on all ranks."""
        import torch
        import torch.distributed as dist

        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(self.stream):
            for number in range(15):
                if number == 5:
                    begin.record()
                operation()
            end.record()
        torch.cuda.synchronize()
        times = [0.0] * dist.get_world_size()
        dist.all_gather_object(times, 1e-4 * begin.elapsed_time(end))
        return max(times)


def replayed_us(timed: Side, background: Side | None) -> float:
    """The time of an operation of a side while the other one runs all the time."""
    for times in (2, 4, 8, 16, 32):  # each of both is slowed down
        time_us, outlasts = once_us(timed, background, times)
        if outlasts:
            return time_us
    sys.exit("the background ended before what is timed")


def once_us(timed: Side, background: Side | None, times: int) -> tuple[float, bool]:
    """That with so many replays of the background for each timed one, and whether they were
    enough on all ranks.
    """
    import torch
    import torch.distributed as dist

    replays = round(RUN_S / GRAPH_S)
    torch.cuda.synchronize()
    dist.barrier()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
    last = torch.cuda.Event(enable_timing=True)
    marks[0].record(timed.stream)
    for number in range(replays):
        for _ in range(times if background else 0):
            with torch.cuda.stream(background.stream):
                background.graph.replay()
        with torch.cuda.stream(timed.stream):
            timed.graph.replay()
        marks[number + 1].record(timed.stream)
    if background:
        last.record(background.stream)
    torch.cuda.synchronize()
    margins = [0.0] * dist.get_world_size()
    dist.all_gather_object(margins, marks[-1].elapsed_time(last) if background else 1.0)
    used = range(replays // 10, replays)
    time_ms = statistics.median(marks[n].elapsed_time(marks[n + 1]) for n in used)
    return 1e3 * time_ms / timed.operations, min(margins) > 0


def time_all(out: Path) -> None:
    """Write what both sides take alone and beside each other, by size."""
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    a, b, product = (torch.randn(SIDE, SIDE, device=device).bfloat16() for _ in range(3))
    load = Side(lambda: torch.mm(a, b, out=product))
    for _ in range(round(WARM_S / GRAPH_S)):
        load.graph.replay()
    data = torch.zeros(max(SIZES) // 2, dtype=torch.bfloat16, device=device)
    found: dict[int, dict[str, float]] = {}
    for size in SIZES:
        collective = Side(lambda size=size: dist.all_reduce(data[: size // 2]))
        times = {
            "collective alone": replayed_us(collective, None),
            "collective beside": replayed_us(collective, load),
            "load alone": replayed_us(load, None),
            "load beside": replayed_us(load, collective),
        }
        longest = torch.tensor(list(times.values()), device=device)
        dist.all_reduce(longest, dist.ReduceOp.MAX)
        found[size] = dict(zip(times, longest.tolist(), strict=True))
    if dist.get_rank() == 0:
        out.write_text(json.dumps(found, indent=1) + "\n")
    dist.destroy_process_group()


def slowdowns_of_busbw(file: Path) -> dict[int, dict[str, float]]:
    """The slowdown of each side, by size."""
    found = {}
    for row in json.loads(file.read_text())["rows"]:
        if row.get("ctas"):
            continue
        found[row["size_bytes"]] = {
            side: statistics.median(row[side]["beside_s"]) / statistics.median(row[side]["alone_s"])
            for side in ("collective", "load")
        }
    return found


def slowdowns_beside(file: Path) -> dict[int, dict[str, float]]:
    """Those of a file that `time` wrote."""
    return {
        int(size): {
            side: times[f"{side} beside"] / times[f"{side} alone"]
            for side in ("collective", "load")
        }
        for size, times in json.loads(file.read_text()).items()
    }


def compare(busbw: list[Path], others: list[Path]) -> None:
    """Print the slowdowns of each run."""
    tables: list[Any] = [*map(slowdowns_of_busbw, busbw), *map(slowdowns_beside, others)]
    print("side             size " + "".join(f"{file.name:>16}" for file in [*busbw, *others]))
    missed = 0
    for side in ("load", "collective"):
        for size in sorted(tables[0]):
            values = [table[size][side] for table in tables if size in table]
            own = statistics.fmean(values[: len(busbw)])
            other = statistics.fmean(values[len(busbw) :])
            is_near = abs(own / other - 1) <= ALLOWED
            missed += side == "load" and not is_near
            row = "".join(f"{value:16.3f}" for value in values)
            print(f"{side:12}{size:10}{row}{'' if is_near else '  *'}")
    print(f"{missed} slowdowns of the load differ by more than {ALLOWED:.0%}")


if __name__ == "__main__":
    if sys.argv[1] == "time":
        time_all(Path(sys.argv[2]))
    else:
        names = sys.argv[2:]
        compare(
            [Path(name) for name in names if "beside" not in Path(name).name],
            [Path(name) for name in names if "beside" in Path(name).name],
        )
