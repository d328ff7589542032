"""How much all_reduce and a product of matrices slow each other down, by PyTorch alone, and both
held against a result of `busbw overlap`.

    torchrun --nproc-per-node 2 overlap_beside.py time OUT.json
    overlap_beside.py compare BUSBW.json OUT.json...

Some operations of a side are timed by events while more of the other side run on another stream,
and likewise alone: the median of ROUNDS, the longest over ranks, per operation. Nothing of busbw is
imported.
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
TIMED_S, MOST, MOST_BEHIND, ROUNDS = 2e-3, 40, 160, 15  # operations that are timed at once
SLEEP_S = 80e-6  # of the GPU for each operation, in which it is enqueued
ALLOWED = 0.03


class Side:
    """An operation on a stream of its own, and how many of it are timed at once."""

    def __init__(self, operation: Callable[[], object]) -> None:
        import torch

        self.operation, self.stream, self.timed = operation, torch.cuda.Stream(), 10
        with torch.cuda.stream(self.stream):
            operation()
        torch.cuda.synchronize()
        once_us = replayed_us(self, None)
        self.timed = min(max(round(TIMED_S / (1e-6 * once_us)), 1), MOST)


def replayed_us(timed: Side, background: Side | None) -> float:
    """The time of an operation of a side while the other one runs all the time: the median of
    ROUNDS, the longest over ranks.
    """
    times = []
    for _ in range(ROUNDS):
        for share in (2, 4, 8, 16, 32):  # each of both is slowed down
            time_us, is_right = once_us(timed, background, share)
            if is_right:
                break
        else:
            sys.exit("the background ended before what is timed")
        times.append(time_us)
    return statistics.median(times)


def once_us(timed: Side, background: Side | None, share: int) -> tuple[float, bool]:
    """That with so many times its operations in the background, and whether they were enough on
    all ranks. The GPU sleeps while all is enqueued. A first operation of each side is not timed.
    """
    import torch
    import torch.distributed as dist

    begin, start, end, last = (torch.cuda.Event(enable_timing=True) for _ in range(4))
    count = min(share * background.timed, MOST_BEHIND) if background else 0
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda._sleep(round(SLEEP_S * 2e9 * (timed.timed + count)))
    dist.all_reduce(torch.zeros(1, device="cuda"))  # all ranks begin together
    begin.record()
    if background:
        background.stream.wait_event(begin)
        with torch.cuda.stream(background.stream):
            for _ in range(1 + count):
                background.operation()
        last.record(background.stream)
    timed.stream.wait_event(begin)
    with torch.cuda.stream(timed.stream):
        timed.operation()
        start.record()
        for _ in range(timed.timed):
            timed.operation()
    end.record(timed.stream)
    if begin.query():
        print("the GPU began before all was enqueued", file=sys.stderr)
    torch.cuda.synchronize()
    is_right = True
    if background:
        is_right = begin.elapsed_time(last) > begin.elapsed_time(end)
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, (1e3 * start.elapsed_time(end) / timed.timed, is_right))
    return max(time_us for time_us, _ in found), all(right for _, right in found)


def time_all(out: Path) -> None:
    """Write what both sides take alone and beside each other, by size."""
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    a, b, product = (torch.randn(SIDE, SIDE, device=device).bfloat16() for _ in range(3))
    load = Side(lambda: torch.mm(a, b, out=product))
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
    print("side             size " + "".join(f"{file.name:>22}" for file in [*busbw, *others]))
    missed = 0
    for side in ("load", "collective"):
        for size in sorted(tables[0]):
            values = [table[size][side] for table in tables if size in table]
            own = statistics.fmean(values[: len(busbw)])
            other = statistics.fmean(values[len(busbw) :])
            is_near = abs(own / other - 1) <= ALLOWED
            missed += side == "load" and not is_near
            row = "".join(f"{value:22.3f}" for value in values)
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
