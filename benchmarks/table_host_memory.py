"""A dynamic embedding table with more rows than its part of the GPU: time of a step with rows in
host memory.

The case is that of dynamicemb with caching (recsys-examples, corelib/dynamicemb/benchmark,
TestCaching): 100 batches that take turns, each with 10 features of 104,857 ids from a power law of
1.05 over 26.8 million ids, 128 columns in fp32. The footprint is the number of different ids in all
batches; the GPU holds a share of it, 0.8 or 1. As there, batches have been looked up before the
first timed step. One thing is scaled down: of the other rows of the table, which no batch has, only
as many exist as fit into HOST_ROWS. They fill the GPU first and the batches push them out.

Each table is checked: a sample of rows against the same steps in fp64.

  python benchmarks/table_host_memory.py result.json            # 2 to 3 minutes, 40 GB of a GPU and
      51 GB of its host
  python benchmarks/table_host_memory.py result.json --tiny     # the same with few rows
"""

import argparse
import json
import time
from pathlib import Path

import torch
from dynamic_table import DEVICE, GPU, Clock, batch_of, kernels, spread, synchronize, update

from busbw_accel.embedding.optimizers import layout
from busbw_accel.embedding.table import EmbeddingTable, TableSettings

HOST_ROWS = 31_000_000  # 47.6 GB with Adam; two batches of free rows are added
OTHERS = 1 << 50  # ids from here on are in no batch
WARM_UP = 4  # passes over all batches
CASES = [("adam", "none", 0.8), ("adam", "lfu", 0.8), ("adam", "none", 1.0), ("sgd", "none", 0.8)]
Sums = list[tuple[torch.Tensor, torch.Tensor]]


class Run:
    """A table, its batches, and the order of its steps so far."""

    def __init__(
        self, table: EmbeddingTable, batches: list[torch.Tensor], gradient: torch.Tensor
    ) -> None:
        self.table, self.batches, self.gradient = table, batches, gradient
        self.order: list[int] = []

    def step(self, number: int, clock: Clock | None = None) -> None:
        """A lookup and an update with a batch."""
        _, handle = self.table.lookup(self.batches[number])
        if clock:
            clock.mark()
        self.table.apply(handle, self.gradient)
        if clock:
            clock.mark()
        self.order.append(number)

    def timed(self, steps: int) -> dict:
        """The times of the next steps, and what moved in each."""
        numbers = [(len(self.order) + turn) % len(self.batches) for turn in range(steps)]
        before, clock = self.table.counters, Clock()
        clock.mark()
        for number in numbers:
            self.step(number, clock)
        times, after = clock.times(), self.table.counters
        moved = {
            name: (getattr(after, name) - getattr(before, name)) / steps
            for name in ("promoted", "demoted", "in_place")
        }
        up, down = (
            round(moved[name] * self.table.layout.nbytes / 1e6, 1)
            for name in ("promoted", "demoted")
        )
        return {
            "lookup": spread(times[::2]),
            "update": spread(times[1::2]),
            "step": spread([a + b for a, b in zip(times[::2], times[1::2], strict=True)]),
            "rows": moved,
            "MB to the GPU": up,
            "MB to the host": down,
        }

    def wall(self) -> float:
        """Milliseconds per step of a pass, by the host's clock."""
        synchronize()
        begin = time.perf_counter()
        for number in range(len(self.batches)):
            self.step(number)
        synchronize()
        return round(1e3 * (time.perf_counter() - begin) / len(self.batches), 3)


def sums_of(sample: torch.Tensor, batches: list[torch.Tensor], gradient: torch.Tensor) -> Sums:
    """For each batch: which of the sampled ids it has, and the sums of their gradients in fp64."""
    made = []
    for ids in batches:
        at = torch.searchsorted(sample, ids).clamp(max=len(sample) - 1)
        here = (sample[at] == ids).nonzero().flatten()
        total = torch.zeros(len(sample), gradient.shape[1], dtype=torch.float64, device=DEVICE)
        total.index_add_(0, at[here], gradient[here].double())
        seen = at[here].unique()
        made.append((seen, total[seen]))
    return made


def difference(run: Run, sample: torch.Tensor, sums: Sums) -> dict[str, float]:
    """The largest difference of the sampled rows from the same steps in fp64."""
    settings = run.table.settings
    states = [
        torch.zeros(len(sample), run.table.dim, dtype=torch.float64, device=DEVICE)
        for _ in range(3)
    ]
    for step, number in enumerate(run.order, 1):
        seen, total = sums[number]
        parts = [state[seen] for state in states]
        update(settings.optimizer, *parts, total, step)
        for state, part in zip(states, parts, strict=True):
            state[seen] = part
    found = run.table.rows(sample, train=False).double()
    worst = float((found - states[0]).abs().max() / states[0].abs().max())
    assert worst < 1e-4, f"rows differ from fp64 by {worst} of the largest"
    return {"rows": len(sample), "largest difference": worst}


def made(
    optimizer: str, eviction: str, near: int, total: int, footprint: int, dim: int, chunk: int
) -> tuple[EmbeddingTable, dict[str, float]]:
    """A table in which all but the rows of the footprint are used."""
    record = layout(TableSettings(optimizer=optimizer), dim).nbytes
    rows = total + 2 * chunk  # with free ones, so that no lookup evicts
    settings = TableSettings(
        optimizer=optimizer,
        eviction=eviction,
        init="zeros",
        lr=0.1,
        initial=rows,
        gpu_bytes=near * record,
        host_bytes=(rows - near) * record,
    )
    begin = time.perf_counter()
    table = EmbeddingTable(dim, settings, DEVICE)
    synchronize()
    allocated = time.perf_counter()
    for ids in (torch.arange(total - footprint, device=DEVICE) + OTHERS).split(chunk):
        table.lookup(ids)
    synchronize()
    filled = time.perf_counter()
    sizes = {
        "rows": total,
        "on the GPU": near,
        "GB on the GPU": near * record / 1e9,
        "GB on the host": settings.host_bytes / 1e9,
    }
    return table, sizes | {
        "seconds to allocate": allocated - begin,
        "seconds to fill": filled - allocated,
    }


def tuned(run: Run) -> dict[str, list[float]]:
    """Milliseconds of a lookup with other tiles and numbers of programs of the kernel that swaps
    rows.
    """
    from busbw_accel.embedding.kernels import steps as module

    found = {}
    choices = [
        ("SWAP", tile)
        for tile in ((2, 1), (4, 2), (4, 4), (8, 2), (8, 4), (8, 8), (16, 4), (16, 8), (32, 8))
    ]
    choices += [("PROGRAMS", number) for number in (264, 528, 1056, 16384)]
    for name, value in choices:
        before = getattr(module, name)
        setattr(module, name, value)
        run.step(len(run.order) % len(run.batches))  # compiles
        times = run.timed(8)
        setattr(module, name, before)
        found[f"{name}={value}"] = [times["lookup"]["median"], times["update"]["median"]]
    return found


def main() -> None:
    """Prints a line for each figure and a table at the end; the file gets the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    features, count, most, dim, turns = (
        (2, 300, 5000, 8, 6) if given.tiny else (10, 104_857, 26_843_545, 128, 100)
    )
    result: dict = {
        "device": torch.cuda.get_device_name() if GPU else "CPU",
        "torch": torch.__version__,
        "features": features,
        "ids": count,
    }
    lines = []

    def keep(name: str, value: object) -> None:
        result[name] = value
        given.result.write_text(json.dumps(result, indent=1))
        print(f"{name}: {value}", flush=True)

    generator = torch.Generator().manual_seed(0)
    batches = [batch_of(features, count, most, generator) for _ in range(turns)]
    every = torch.cat(batches).unique()
    footprint = len(every)
    keep("unique ids of a batch, mean", sum(len(ids.unique()) for ids in batches) / turns)
    keep("footprint", footprint)
    gradient = torch.randn(features * count, dim, device=DEVICE)
    chosen = torch.randint(footprint, (4000,), generator=generator).to(DEVICE)
    # every[:100]: the most frequent ids of a feature
    sample = torch.cat([every[chosen], every[:100]]).unique()
    del every
    sums = sums_of(sample, batches, gradient)
    total = int(0.8 * footprint) + (2000 if given.tiny else HOST_ROWS)
    for optimizer, eviction, share in CASES:
        name = f"{optimizer}, {'lfu' if eviction == 'lfu' else 'lru'}, {share}"
        table, sizes = made(
            optimizer, eviction, int(share * footprint), total, footprint, dim, features * count
        )
        keep(f"{name}: table", {key: round(value, 2) for key, value in sizes.items()})
        run = Run(table, batches, gradient)
        run.step(0)
        keep(f"{name}: first pass, ms", run.timed(turns - 1))
        for _ in range((WARM_UP - 1) * turns):
            run.step(len(run.order) % turns)
        times = run.timed(turns)
        keep(f"{name}: step, ms", times)
        keep(f"{name}: wall, ms", run.wall())
        if optimizer == "adam" and share < 1 and GPU:
            keep(f"{name}: kernels, us", kernels(table, batches[:5], gradient))
            run.order += range(5)
        keep(f"{name}: against fp64", difference(run, sample, sums))
        if (optimizer, eviction) == ("adam", "none") and share < 1 and GPU:
            keep(f"{name}: tiles, ms of lookup and update", tuned(run))
        counted = table.counters
        assert counted.stored == total and not counted.evicted + counted.refused + counted.lost, (
            counted
        )
        parts = [times[part]["median"] for part in ("step", "lookup", "update")] + list(
            times["rows"].values()
        )
        lines.append(
            f"{name:>16}"
            + "".join(
                f"{part:12.2f}"
                for part in [*parts, times["MB to the GPU"], times["MB to the host"]]
            )
        )
        del run, table
        torch.cuda.empty_cache()
    columns = (
        "step, ms",
        "lookup",
        "update",
        "promoted",
        "demoted",
        "in place",
        "MB to GPU",
        "MB to host",
    )
    print(" " * 16 + "".join(f"{column:>12}" for column in columns), *lines, sep="\n")


if __name__ == "__main__":
    main()
