"""A growing embedding table on one GPU: correctness, time of a step, growth, eviction.

The step is the case that NVIDIA published for dynamicemb (recsys-examples,
corelib/dynamicemb/benchmark): 10 features of 104,857 ids each from a power law of 1.05 over 1.7
million ids, 128 columns in fp32. Here one table serves all features; an id has its feature in the
upper bits. Every id is in the table before the first timed step. A step is a lookup of all ids and
the update of their rows, by CUDA events over several batches that take turns. Also: plain torch
with torch.unique and torch.optim.SparseAdam over a dense weight, and a copy.

  python benchmarks/dynamic_table.py result.json            # the whole, about 8 minutes and 80 GB
      of a GPU
  python benchmarks/dynamic_table.py result.json --tune     # also the times of other tile sizes
  python benchmarks/dynamic_table.py result.json --tiny     # the same on a CPU, in seconds
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

from busbw_accel.embedding.settings import OPTIMIZERS
from busbw_accel.embedding.table import EmbeddingTable, TableSettings

EXPONENT = 1.05
BATCHES, ROUNDS = 6, 5
GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda", 0) if GPU else torch.device("cpu")


def power_law(count: int, most: int, generator: torch.Generator) -> torch.Tensor:
    """Ids from 0 to `most` - 1: the integer part of a bounded Pareto distribution."""
    power = 1 - EXPONENT
    uniform = torch.rand(count, dtype=torch.float64, generator=generator)
    return (((most + 1.0) ** power - 1) * uniform + 1).pow(1 / power).long().clamp(1, most) - 1


def batch_of(features: int, count: int, most: int, generator: torch.Generator) -> torch.Tensor:
    """The ids of all features, one after another. Ids are spread over 40 bits."""
    ids = torch.stack(
        [power_law(count, most, generator) + (feature << 40) for feature in range(features)]
    )
    return ids.flatten().to(DEVICE)


def synchronize() -> None:
    """Wait for the device."""
    if GPU:
        torch.cuda.synchronize()


class Clock:
    """Milliseconds between marks: of the GPU by events, elsewhere of the host."""

    def __init__(self) -> None:
        self.marks: list = []

    def mark(self) -> None:
        """Set a mark."""
        if GPU:
            self.marks.append(torch.cuda.Event(enable_timing=True))
            self.marks[-1].record()
        else:
            self.marks.append(time.perf_counter())

    def times(self) -> list[float]:
        """Milliseconds between consecutive marks."""
        synchronize()
        pairs = itertools.pairwise(self.marks)
        return [begin.elapsed_time(end) if GPU else 1e3 * (end - begin) for begin, end in pairs]


def spread(times: list[float]) -> dict[str, float]:
    """Median, least and largest, in ms."""
    return {
        "median": round(statistics.median(times), 4),
        "least": round(min(times), 4),
        "most": round(max(times), 4),
    }


def timed(call: Callable[[], object], rounds: int = 20) -> dict[str, float]:
    """The times of a call."""
    for _ in range(3):
        call()
    clock = Clock()
    clock.mark()
    for _ in range(rounds):
        call()
        clock.mark()
    return spread(clock.times())


def filled(settings: TableSettings, dim: int, features: int, most: int) -> EmbeddingTable:
    """A table that has every id."""
    table = EmbeddingTable(dim, settings, DEVICE)
    for feature in range(features):
        for ids in (torch.arange(most, device=DEVICE) + (feature << 40)).split(1 << 20):
            table.lookup(ids)
    return table


def steps(table: EmbeddingTable, batches: list[torch.Tensor], gradient: torch.Tensor) -> dict:
    """The times of lookups, updates and both."""

    def step(ids: torch.Tensor, clock: Clock | None = None) -> None:
        _, handle = table.lookup(ids)
        if clock:
            clock.mark()
        table.apply(handle, gradient)
        if clock:
            clock.mark()

    for ids in batches:
        step(ids)
    clock = Clock()
    clock.mark()
    for ids in batches * ROUNDS:
        step(ids, clock)
    times = clock.times()
    synchronize()
    begin = time.perf_counter()
    for ids in batches * ROUNDS:
        step(ids)
    queued = time.perf_counter() - begin
    synchronize()
    whole = time.perf_counter() - begin
    count = len(batches) * ROUNDS
    return {
        "lookup": spread(times[::2]), "update": spread(times[1::2]),
        "step": spread([a + b for a, b in zip(times[::2], times[1::2], strict=True)]),
        "wall": round(1e3 * whole / count, 4), "host": round(1e3 * queued / count, 4),
    }  # fmt: skip


def kernels(
    table: EmbeddingTable, batches: list[torch.Tensor], gradient: torch.Tensor
) -> dict[str, float]:
    """Microseconds of the GPU per step, by kernel."""
    if not GPU:
        return {}
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for ids in batches:
            _, handle = table.lookup(ids)
            table.apply(handle, gradient)
        synchronize()
    rows = sorted(seen.key_averages(), key=lambda row: -row.self_device_time_total)
    return {row.key[:60]: round(row.self_device_time_total / len(batches), 1) for row in rows[:12]}


def reference(
    dim: int, features: int, most: int, batches: list[torch.Tensor], gradient: torch.Tensor
) -> dict:
    """Plain torch: a dense weight, torch.unique, a gather, a sum of gradients by index_add and
    SparseAdam.
    """
    weight = torch.nn.Parameter(torch.zeros(features * most, dim, device=DEVICE))
    optimizer = torch.optim.SparseAdam([weight])

    def step() -> None:
        ids = next(turns)
        unique, inverse = ((ids >> 40) * most + (ids & ((1 << 40) - 1))).unique(return_inverse=True)
        _ = weight.detach()[unique][inverse]
        total = gradient.new_zeros(len(unique), dim).index_add_(0, inverse, gradient)
        weight.grad = torch.sparse_coo_tensor(
            unique[None], total, weight.shape, is_coalesced=True, check_invariants=False
        )
        optimizer.step()

    turns = itertools.cycle(batches)
    return timed(step, 2 * len(batches))


def correct(optimizer: str, deterministic: bool, dim: int, count: int) -> dict[str, float]:
    """The largest differences of rows from the same steps in fp64 on the host.

    The ids include the extremes of 64 bits.
    """
    generator = torch.Generator().manual_seed(1)
    table = EmbeddingTable(
        dim,
        TableSettings(
            optimizer=optimizer, lr=0.1, init="zeros", deterministic=deterministic, initial=64
        ),
        DEVICE,
    )
    extremes = torch.tensor([-1, 0, (1 << 63) - 1, -(1 << 63)])
    batches = [
        torch.cat([power_law(count, 10 * count, generator) * 7919 - 5, extremes]) for _ in range(4)
    ]
    every = torch.cat(batches).unique()
    weight, moment, square = (torch.zeros(len(every), dim, dtype=torch.float64) for _ in range(3))
    for step, ids in enumerate(batches, 1):
        gradient = torch.randn(len(ids), dim, generator=generator)
        _, handle = table.lookup(ids.to(DEVICE))
        table.apply(handle, gradient.to(DEVICE))
        total = torch.zeros(len(every), dim, dtype=torch.float64).index_add_(
            0, torch.searchsorted(every, ids), gradient.double()
        )
        seen = torch.searchsorted(every, ids.unique())
        states = [one[seen] for one in (weight, moment, square)]
        update(optimizer, *states, total[seen], step)
        for one, state in zip((weight, moment, square), states, strict=True):
            one[seen] = state
    chunk = next(iter(table.export(len(every) + 1)))
    assert torch.equal(chunk["ids"], every), "the table has other ids than were looked up"
    return {
        "rows": len(every),
        "difference": float((chunk["rows"].double() - weight).abs().max()),
        "largest": float(weight.abs().max()),
    }


def update(optimizer: str, weight, moment, square, gradient, step: int) -> None:
    """The rule of rows in fp64, in place; see embedding/optimizers.py."""
    energy = gradient**2 if optimizer == "adam" else (gradient**2).mean(1, keepdim=True)
    if optimizer == "sgd":
        weight -= 0.1 * gradient
    elif optimizer == "rowwise_adagrad":
        square += energy
        weight -= 0.1 * gradient / (square.sqrt() + 1e-8)
    else:
        moment += 0.1 * (gradient - moment)
        square += 0.001 * (energy - square)
        weight -= 0.1 * (moment / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)


def repeatable(dim: int, count: int) -> dict[str, bool]:
    """Whether two tables have the same bits after the same steps, with and without
    `deterministic`.
    """

    def end(deterministic: bool) -> torch.Tensor:
        generator = torch.Generator().manual_seed(2)
        table = EmbeddingTable(dim, TableSettings(deterministic=deterministic), DEVICE)
        for _ in range(3):
            ids = power_law(count, count, generator).to(DEVICE)
            table.apply(
                table.lookup(ids)[1], torch.randn(len(ids), dim, generator=generator).to(DEVICE)
            )
        return next(iter(table.export(1 << 30)))["rows"]

    return {str(kind): torch.equal(end(kind), end(kind)) for kind in (True, False)}


def growth(dim: int, most: int, chunk: int) -> dict[str, float]:
    """A table that grows from 4096 rows to `most`: seconds, its bytes, and the largest
    allocation over them.
    """
    if GPU:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if GPU else 0
    table, begin = EmbeddingTable(dim, TableSettings(), DEVICE), time.perf_counter()
    for ids in torch.arange(most, device=DEVICE).split(chunk):
        table.lookup(ids)
    synchronize()
    seconds = time.perf_counter() - begin
    peak = torch.cuda.max_memory_allocated() - before if GPU else 0
    used = 4 * len(table) * table.layout.width
    return {
        "rows": len(table),
        "seconds": round(seconds, 3),
        "bytes of rows": used,
        "peak over it": round(peak / used, 3),
    }


def evicting(dim: int, kind: str, features: int, count: int, most: int) -> dict:
    """A full table with ids that wander, by a tenth of the range in each batch: the times of a
    step, and evictions per step.
    """
    table = filled(
        TableSettings(capacity=features * most, initial=features * most, eviction=kind),
        dim,
        features,
        most,
    )
    gradient, generator = (
        torch.randn(features * count, dim, device=DEVICE),
        torch.Generator().manual_seed(3),
    )
    batches = [
        batch_of(features, count, most, generator) + turn * most // 10 for turn in range(1, 31)
    ]
    for ids in batches[:10]:
        table.apply(table.lookup(ids)[1], gradient)
    before, clock = table.counters, Clock()
    clock.mark()
    for ids in batches[10:]:
        table.apply(table.lookup(ids)[1], gradient)
        clock.mark()
    times, after = clock.times(), table.counters
    changes = {
        name: (getattr(after, name) - getattr(before, name)) / len(times)
        for name in ("inserted", "evicted", "refused")
    }
    return {"step": spread(times), "mean": round(statistics.mean(times), 4), "per step": changes}


def tuned(
    table: EmbeddingTable, batches: list[torch.Tensor], gradient: torch.Tensor
) -> Iterator[dict]:
    """The steps' times with other tiles and numbers of programs."""
    from busbw_accel.embedding.kernels import find, place
    from busbw_accel.embedding.kernels import steps as made

    tiles = [(1, 1), (2, 1), (4, 1), (2, 2), (4, 2), (4, 4), (8, 4), (16, 4), (16, 8), (32, 8)]
    choices = [(made, "READ", tile) for tile in tiles] + [(made, "UPDATE", tile) for tile in tiles]
    choices += [(made, "PROGRAMS", number) for number in (1056, 2112, 8448, 16896, 1 << 20)]
    choices += [(place, "CUT", number) for number in (8, 16, 64)] + [
        (find, "BLOCK", 128),
        (find, "BLOCK", 512),
        (place, "BLOCK", 512),
    ]
    for module, name, value in choices:
        before = getattr(module, name)
        setattr(module, name, value)
        times = steps(table, batches, gradient)
        setattr(module, name, before)
        yield {
            "setting": f"{name}={value}",
            "lookup": times["lookup"]["median"],
            "update": times["update"]["median"],
        }


def main() -> None:
    """Prints a line for each figure; the file gets them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--tune", action="store_true")
    given = parser.parse_args()
    features, count, most, dim = (2, 300, 500, 8) if given.tiny else (10, 104_857, 1_700_000, 128)
    small = 200 if given.tiny else 30_000
    result: dict = {
        "device": torch.cuda.get_device_name() if GPU else "CPU",
        "torch": torch.__version__,
        "features": features,
        "ids": count,
    }

    def keep(name: str, value: object) -> None:
        result[name] = value
        given.result.write_text(json.dumps(result, indent=1))
        print(f"{name}: {value}", flush=True)

    for optimizer, kind in itertools.product(OPTIMIZERS, (False, True)):
        keep(
            f"against fp64, {optimizer}{', deterministic' if kind else ''}",
            correct(optimizer, kind, 20, small),
        )
    keep("the same bits in two runs, by deterministic", repeatable(dim, small))
    generator = torch.Generator().manual_seed(0)
    batches = [batch_of(features, count, most, generator) for _ in range(BATCHES)]
    keep("unique ids of a batch", [len(ids.unique()) for ids in batches])
    gradient = torch.randn(features * count, dim, device=DEVICE)
    keep("copy of the gradients, ms", timed(partial(torch.empty_like(gradient).copy_, gradient)))
    for optimizer in OPTIMIZERS:
        table = filled(
            TableSettings(optimizer=optimizer, initial=features * most), dim, features, most
        )
        keep(f"step, {optimizer}, ms", steps(table, batches, gradient))
        keep(f"kernels, {optimizer}, us per step", kernels(table, batches, gradient))
        keep(f"counters, {optimizer}", str(table.counters))
        if optimizer == "adam" and given.tune and GPU:
            for row in tuned(table, batches, gradient):
                keep(f"tune {row.pop('setting')}", row)
        del table
    settings = TableSettings(initial=features * most, deterministic=True)
    keep(
        "step, adam, deterministic, ms",
        steps(filled(settings, dim, features, most), batches, gradient),
    )
    keep(
        "step, plain torch on a dense weight, ms", reference(dim, features, most, batches, gradient)
    )
    keep("growth", growth(dim, most * (4 if GPU else 1), 1 << 20))
    for kind in ("lru", "lfu"):
        keep(f"step with eviction, {kind}", evicting(dim, kind, features, count, most))


if __name__ == "__main__":
    main()
