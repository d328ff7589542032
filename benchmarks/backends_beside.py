"""The backends of `busbw backends` timed by a program of PyTorch alone, and both compared.

    torchrun --nproc-per-node 2 backends_beside.py time OUT.json     times by backend and size
    backends_beside.py compare BUSBW.json OUT.json...                 and differences

Each time is of a CUDA graph of CALLS calls, replayed REPLAYS times between two CUDA events: the
median of ROUNDS, the largest over ranks, per call. Backends take turns in each round, on a GPU
that has worked for WARM_S. Nothing of busbw is imported.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS, REPLAYS, ROUNDS, WARM_S = 16, 20, 15, 0.5
SIZES = [1 << power for power in range(10, 27, 2)]
ROOM = 256 << 20  # bytes of a buffer, in which the calls of a graph have places of their own
ALLOWED, ALLOWED_US = 0.03, 0.3


def backends(group: Any, device: Any) -> dict[str, Callable[[int, int], Callable[[], object]]]:
    """For each backend what makes the call of a size at a place."""
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric_memory

    kind, ops = torch.bfloat16, torch.ops.symm_mem
    plain = torch.zeros(ROOM // 2, dtype=kind, device=device)
    dist.all_reduce(plain[:8])
    nccl = group._get_backend(device)
    pool = torch.cuda.MemPool(nccl.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        window = torch.zeros(ROOM // 2, dtype=kind, device=device)
    nccl.register_mem_pool(pool, symm=True)
    mapped = symmetric_memory.empty(ROOM // 2, dtype=kind, device=device)
    symmetric_memory.rendezvous(mapped, group)

    def part(tensor: Any, size: int, place: int) -> Any:
        count = size // 2
        return tensor[place * count : (place + 1) * count]

    name = group.group_name
    return {
        "nccl": lambda size, place: lambda: dist.all_reduce(part(plain, size, place)),
        "nccl-symmetric": lambda size, place: lambda: dist.all_reduce(part(window, size, place)),
        "one-shot": lambda size, place: (
            lambda: ops.one_shot_all_reduce_out(
                part(mapped, size, place), "sum", name, part(plain, size, place)
            )
        ),
        "two-shot": lambda size, place: (
            lambda: ops.two_shot_all_reduce_(part(mapped, size, place), "sum", name)
        ),
    }


def captured(calls: list[Callable[[], object]]) -> Any:
    """A graph of these."""
    import torch

    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def replayed_us(graph: Any) -> float:
    """The time of a replay."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    begin.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    end.synchronize()
    return 1e3 * begin.elapsed_time(end) / REPLAYS


def warm_up(device: Any) -> None:
    """Work until the GPU's clocks are those of a busy one."""
    import torch

    a, until = torch.randn(4096, 4096, device=device).bfloat16(), time.monotonic() + WARM_S
    while time.monotonic() < until:
        torch.mm(a, a)
        torch.cuda.synchronize()


def time_all(out: Path) -> None:
    """Write the times."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("nccl", device_id=torch.device("cuda", int_of("LOCAL_RANK")))
    device = torch.device("cuda", int_of("LOCAL_RANK"))
    torch.cuda.set_device(device)
    calls, found = backends(dist.group.WORLD, device), dict[str, dict[int, float]]()
    warm_up(device)
    for size in SIZES:
        places = max(min(CALLS, ROOM // size), 1)
        graphs = {
            name: captured([call(size, place) for place in range(places)])
            for name, call in calls.items()
        }
        rounds = [[replayed_us(graph) for graph in graphs.values()] for _ in range(ROUNDS)]
        medians = [statistics.median(column) / places for column in zip(*rounds, strict=True)]
        longest = torch.tensor(medians, device=device)
        dist.all_reduce(longest, dist.ReduceOp.MAX)
        for name, time_us in zip(graphs, longest.tolist(), strict=True):
            found.setdefault(name, {})[size] = time_us
        graphs.clear()
    if dist.get_rank() == 0:
        out.write_text(json.dumps(found, indent=1) + "\n")
    dist.destroy_process_group()


def int_of(name: str) -> int:
    """A number in the environment."""
    import os

    return int(os.environ[name])


def compare(busbw: Path, others: list[Path]) -> None:
    """Print both, and by how much busbw's are longer than the mean of the others."""
    rows = json.loads(busbw.read_text())["rows"]
    tables = [json.loads(other.read_text()) for other in others]
    print("backend             size     busbw us  beside us  spread   longer by")
    missed = 0
    for row in rows:
        for timed in row["times"]:
            size, name = row["size_bytes"], timed["backend"]
            beside = [table[name].get(str(size)) for table in tables if name in table]
            if timed["mode"] != "graph" or not timed.get("cell") or not beside or None in beside:
                continue
            own_us, other_us = 1e6 * timed["cell"]["time_s"], statistics.fmean(beside)
            spread = max(beside) / min(beside) - 1
            longer = own_us / other_us - 1
            is_near = abs(longer) <= ALLOWED or abs(own_us - other_us) <= ALLOWED_US
            missed += not is_near
            mark = "" if is_near else "  *"
            print(
                f"{name:16}{size:10}{own_us:11.2f}{other_us:11.2f}{spread:8.1%}{longer:10.1%}{mark}"
            )
    print(f"{missed} differ by more than {ALLOWED:.0%} and {ALLOWED_US} us")


if __name__ == "__main__":
    if sys.argv[1] == "time":
        time_all(Path(sys.argv[2]))
    else:
        compare(Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
