"""Steps of busbw_accel.DynamicEmbedding on 1, 2, ... ranks of this machine: `python
benchmarks/embedding_ranks.py --out FILE.json`.

Each rank looks up a batch of Zipf ids and applies a gradient. Times are medians over steps, of the
slowest rank. The parts of a step are timed in steps of their own, with a wait for the device after
each part, so that they add up to more than a step.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from busbw_accel import DynamicEmbedding, TableSettings

SETTINGS = ("fp32", "bf16", "fp32, unchecked")


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--ranks", default="", help="numbers of ranks, default: 1, 2, 4, ... up to the GPUs"
    )
    parser.add_argument("--ids", type=int, default=1 << 20, help="ids of a rank's batch")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--exponent", type=float, default=1.05, help="of the Zipf law")
    parser.add_argument("--space", type=int, default=10_000_000, help="different ids")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--out", type=Path, default=Path("embedding_ranks.json"))
    parser.add_argument("--rank", action="store_true", help="be one of the ranks")
    return parser.parse_args()


def zipf(count: int, chosen: argparse.Namespace, device: torch.device) -> torch.Tensor:
    """The inverse of the continuous law's distribution function."""
    power = 1 - chosen.exponent
    uniform = torch.rand(count, device=device, dtype=torch.float64)
    return (1 + uniform * (chosen.space**power - 1)).pow(1 / power).long()


def wait() -> None:
    """For the device."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Parts:
    """Times of methods, by name."""

    def __init__(self, embedding: DynamicEmbedding) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.on = False
        self.changed = []
        for owner, names in (
            (embedding.table, ("lookup", "apply")),
            (embedding._exchange, ("route", "rows_back", "gradients_out")),
        ):
            for name in names if owner is not None else ():
                setattr(owner, name, self.timed(name, getattr(owner, name)))
                self.changed.append((owner, name))

    def undo(self) -> None:
        """The exchange is shared with the embeddings that follow."""
        for owner, name in self.changed:
            delattr(owner, name)

    def timed(self, name, method):
        """The method, and its time where `on`."""

        def call(*given, **words):
            if not self.on:
                return method(*given, **words)
            wait()
            begin = time.perf_counter()
            made = method(*given, **words)
            wait()
            self.seconds.setdefault(name, []).append(time.perf_counter() - begin)
            return made

        return call


def slowest(seconds: float, device: torch.device) -> float:
    """Of all ranks."""
    most = torch.tensor([seconds], device=device, dtype=torch.float64)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return float(most)


def measured(setting: str, chosen: argparse.Namespace, device: torch.device) -> dict:
    """One setting on all ranks."""
    wire, check = setting.split(",")[0], "unchecked" not in setting
    made = TableSettings(optimizer=chosen.optimizer)
    embedding = DynamicEmbedding(chosen.dim, made, device=device, wire=wire, check_finite=check)
    batches = [zipf(chosen.ids, chosen, device) for _ in range(8)]
    gradient = torch.randn(chosen.ids, chosen.dim, device=device) * 1e-3
    forward, step = [], []
    parts = Parts(embedding)
    for number in range(16 + 2 * chosen.steps):  # the first 16 make the rows
        parts.on = number >= 16 + chosen.steps
        dist.barrier()
        wait()
        begin = time.perf_counter()
        rows = embedding(batches[number % 8])
        wait()
        middle = time.perf_counter()
        rows.backward(gradient)
        wait()
        if 16 <= number < 16 + chosen.steps:
            forward.append(middle - begin)
            step.append(time.perf_counter() - begin)
    parts.undo()
    counters = embedding.table.counters
    times = {"forward": forward, "step": step, **parts.seconds}
    return {
        "setting": setting,
        "milliseconds": {
            name: 1e3 * slowest(statistics.median(values), device)
            for name, values in sorted(times.items())
        },
        "distinct ids": statistics.median(len(batch.unique()) for batch in batches),
        "rows of rank 0": counters.stored,
        "lost": counters.refused + counters.not_finite,
        "peak bytes": torch.cuda.max_memory_allocated() if device.type == "cuda" else None,
    }


def rank(chosen: argparse.Namespace) -> None:
    """Every setting; rank 0 writes a line for each."""
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo")
    torch.manual_seed(dist.get_rank())
    ranks = dist.get_world_size()
    for setting in SETTINGS if ranks > 1 else ("fp32", "fp32, unchecked"):
        found = {"ranks": ranks, **measured(setting, chosen, device)}
        if dist.get_rank() == 0:
            with chosen.out.open("a") as file:
                file.write(json.dumps(found) + "\n")
    dist.destroy_process_group()


def main() -> None:
    """Start the ranks and print a table."""
    chosen = arguments()
    if chosen.rank:
        rank(chosen)
        return
    most = max(1, torch.cuda.device_count())
    numbers = (
        [int(word) for word in chosen.ranks.split(",")]
        if chosen.ranks
        else [1 << bit for bit in range(most.bit_length())]
    )
    chosen.out.unlink(missing_ok=True)
    for number in numbers:
        launch = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={number}",
        ]
        subprocess.run([*launch, __file__, "--rank", *sys.argv[1:]], check=True, timeout=600)
    found = [json.loads(line) for line in chosen.out.read_text().splitlines()]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    facts = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(chosen).items()
    }
    chosen.out.write_text(
        json.dumps(
            {"torch": torch.__version__, "device": device, "arguments": facts, "results": found},
            indent=1,
        )
    )
    names = ("step", "forward", "route", "lookup", "rows_back", "gradients_out", "apply")
    print(f"{device}, {chosen.ids} ids a rank, dim {chosen.dim}, {chosen.optimizer}; milliseconds")
    print(f"{'ranks':>5}  {'wire':16}" + "".join(f"{name:>14}" for name in names) + f"{'lost':>6}")
    for one in found:
        times = one["milliseconds"]
        cells = "".join(f"{times[name]:14.3f}" if name in times else f"{'':14}" for name in names)
        print(f"{one['ranks']:>5}  {one['setting']:16}{cells}{one['lost']:>6}")


if __name__ == "__main__":
    main()
