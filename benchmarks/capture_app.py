"""An application to be captured: PyTorch, two ranks or more, started by mpirun. capture_cost.py
starts it.

capture_app.py script CALLS FILE     a seeded mix of collectives over three communicators;
    FILE.RANK.json lists the calls
capture_app.py mixed                 collectives, sends and receives over the world and groups of
                                     two, on two streams
capture_app.py masks FILE LIBRARY    times of loops by the events that NCCL reports to busbw's
    plugin LIBRARY
capture_app.py loops FILE            times of all_reduce loops and of VGG16 steps; rank 0 writes
    FILE
"""

import json
import os
import random
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

LOOPS = {
    8: (40, 500),
    131072: (10, 200),
    1 << 20: (10, 200),
    4 << 20: (10, 100),
    32 << 20: (10, 50),
    256 << 20: (5, 20),
}  # bytes: loops, calls
DTYPES = {
    "float": torch.float32,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "uint8": torch.uint8,
}
MOST = 1 << 16
# bytes: calls of a loop
MASKED = {8: 2000, 128 << 10: 1000, 1 << 20: 500, 4 << 20: 200, 32 << 20: 50, 256 << 20: 10}
STEPS, WARM, BATCH = 40, 10, 64


def script(calls: int, ranks: int) -> list[dict]:
    """What each rank calls, the same on all."""
    dice = random.Random(1)
    functions = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
    return [
        {
            "comm": dice.randrange(3),
            "function": dice.choice(functions),
            "dtype": dice.choice(list(DTYPES)),
            "count": dice.choice((1, 3, 256, 4096, dice.randrange(1, MOST // ranks))),
            "root": dice.randrange(ranks),
        }
        for _ in range(calls)
    ]


def run_script(calls: int, out: str) -> None:
    """Run it."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    groups = [
        dist.group.WORLD,
        dist.new_group(list(range(ranks))),
        dist.new_group(list(range(ranks))),
    ]
    data = {
        name: (
            torch.zeros(MOST, dtype=dtype, device="cuda"),
            torch.zeros(MOST, dtype=dtype, device="cuda"),
        )
        for name, dtype in DTYPES.items()
    }
    done = script(calls, ranks)
    for number, call in enumerate(done):
        (one, two), count, group = data[call["dtype"]], call["count"], groups[call["comm"]]
        match call["function"]:
            case "all_reduce":
                dist.all_reduce(one[:count], group=group)
            case "all_gather":
                dist.all_gather_into_tensor(two[: count * ranks], one[:count], group=group)
            case "reduce_scatter":
                dist.reduce_scatter_tensor(two[:count], one[: count * ranks], group=group)
            case "broadcast":
                dist.broadcast(one[:count], call["root"], group=group)
            case "reduce":
                dist.reduce(one[:count], call["root"], group=group)
        if number % 500 == 499:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    Path(f"{out}.{rank}.json").write_text(json.dumps(done), encoding="utf-8")


def mixed(turns: int = 20) -> None:
    """Run collectives, sends and receives over the world, neighbors and every other rank; each
    kind of group on a stream of its own.
    """
    ranks, rank = dist.get_world_size(), dist.get_rank()
    neighbors = [dist.new_group([first, first + 1]) for first in range(0, ranks, 2)][rank // 2]
    others = (
        [dist.new_group(list(range(first, ranks, 2))) for first in range(2)][rank % 2]
        if ranks > 2
        else neighbors
    )
    one, two = (torch.ones(4 << 20, device="cuda") for _ in range(2))
    parts = list(torch.ones(ranks, 1 << 16, device="cuda").unbind())
    uneven = [(rank + other) % ranks + 1 << 10 for other in range(ranks)]  # the same both ways
    side = torch.cuda.Stream()
    for _ in range(turns):
        dist.all_reduce(one[: 1 << 20], group=neighbors)
        with torch.cuda.stream(side):
            dist.all_reduce(two[: 1 << 18], dist.ReduceOp.MAX, group=others)
        dist.all_gather_into_tensor(one[: ranks << 16], two[: 1 << 16])
        dist.reduce_scatter_tensor(two[: 1 << 16], one[: ranks << 16])
        dist.broadcast(one[: 1 << 19], 1)
        dist.reduce(one[:1000], ranks - 1)
        dist.all_to_all_single(two[: ranks << 16], one[: ranks << 16])
        dist.all_to_all_single(two[: sum(uneven)], one[: sum(uneven)], uneven, uneven)
        dist.gather(parts[0], parts if rank == 0 else None, 0)
        dist.scatter(parts[0], parts if rank == 1 else None, 1)
        sent = dist.P2POp(dist.isend, one[: 1 << 18], (rank + 1) % ranks)
        received = dist.P2POp(dist.irecv, two[: 1 << 18], (rank - 1) % ranks)
        for work in dist.batch_isend_irecv([sent, received]):
            work.wait()
        if rank < 2:
            (dist.send if rank == 0 else dist.recv)(one[:77], 1 - rank)
        torch.cuda.synchronize()


def loops() -> dict[str, dict[str, float]]:
    """Microseconds per call over a loop, and until the last one is enqueued."""
    found = {}
    data = torch.zeros(max(LOOPS) // 4, device="cuda")
    for size, (turns, calls) in LOOPS.items():
        part = data[: max(size // 4, 1)]
        hosts, enqueues = [], []
        for turn in range(turns + 2):
            dist.barrier()
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(part)
            enqueued = time.perf_counter()
            torch.cuda.synchronize()
            if turn >= 2:
                hosts.append((time.perf_counter() - start) / calls * 1e6)
                enqueues.append((enqueued - start) / calls * 1e6)
        found[str(size)] = {
            name: statistics.median(values)
            for name, values in (("host", hosts), ("enqueue", enqueues))
        }
    return found


def vgg() -> float:
    """Milliseconds of a step of VGG16, DDP, fp32."""
    from torchvision.models import vgg16

    model = torch.nn.parallel.DistributedDataParallel(vgg16().cuda(), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    images, labels = (
        torch.randn(BATCH, 3, 224, 224, device="cuda"),
        torch.randint(1000, (BATCH,), device="cuda"),
    )
    taken = []
    for step in range(WARM + STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        torch.cuda.synchronize()
        if step >= WARM:
            taken.append((time.perf_counter() - start) * 1e3)
    return statistics.median(taken)


def masks(library: str) -> dict[str, dict[str, list[float]]]:
    """Microseconds per call of loops, enqueued back to back, by bytes and by the events that NCCL
    reports.

    With library `-` they are those that the environment asks for.
    """
    import ctypes

    from busbw.core.sweep import SweepSpec, series
    from busbw.engines.nccl import NcclEngine
    from busbw.launch.rendezvous import join
    from busbw.measure.plan import Calls

    control = join(dict(os.environ), expect=None)
    spec = SweepSpec(collective="all_reduce", check=0)
    engine = NcclEngine(control, spec, [control.process % torch.cuda.device_count()])
    engine.allocate(max(MASKED), max(MASKED))
    calls = Calls(spec, next(series(spec, control.processes)), control.processes)
    mask = ctypes.CDLL(library).busbw_capture_mask if library != "-" else int
    own = mask(0)
    events = (
        (("none", 0), ("tasks", 0x6), ("calls", 0x606), ("own", own))
        if library != "-"
        else (("own", 0),)
    )
    found: dict[str, dict[str, list[float]]] = {}
    for size, count in MASKED.items():
        launch = engine.bind(calls.at(size, in_place=False))
        for turn in range(41):
            for name, value in events:
                mask(value)
                control.barrier()
                start = time.perf_counter()
                for _ in range(count):
                    launch()
                engine.synchronize(0)
                if turn:
                    taken = (time.perf_counter() - start) / count * 1e6
                    found.setdefault(str(size), {}).setdefault(name, []).append(taken)
    engine.close()
    control.close()
    return found


def main() -> None:
    """Join, run, write."""
    rank, ranks = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    if sys.argv[1] == "masks":
        found = masks(sys.argv[3])
        if rank == 0:
            Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
        return
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29581")
    torch.cuda.set_device(
        int(os.environ.get("NCCL_TESTS_DEVICE", rank % torch.cuda.device_count()))
    )
    dist.init_process_group("nccl")
    if sys.argv[1] == "script":
        run_script(int(sys.argv[2]), sys.argv[3])
    elif sys.argv[1] == "mixed":
        mixed()
    else:
        found = {"loops": loops(), "vgg16_ms": vgg()}
        if rank == 0:
            Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    torch.cuda.synchronize()
    if sys.argv[1] != "script":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
