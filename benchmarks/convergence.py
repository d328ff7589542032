"""The cost of compression in steps: digits trained with every method, over 5 seeds.

`convergence.py [FILE.json] [SEEDS] [EPOCHS] [METHODS]`; methods other than dense, separated by ;.

scikit-learn's digits (1797 pictures of 8 x 8, 360 kept for the test) and an MLP 64-256-256-10 of
85,002 parameters; 4 ranks over gloo stand for 2 hosts of 2, batch 16 each, SGD with momentum 0.9. A
method has the same data, initial parameters and rate as the dense run of its seed. Prints the
accuracy at the end, and the steps until its mean over 11 steps first reaches 96 %, since the end
alone favors methods that are slow at first.
"""

import json
import math
import os
import platform
import statistics
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import busbw_accel

RANKS, HOSTS, BATCH, SEEDS, EPOCHS = 4, 2, 16, 5, 30
TARGET, TESTED, SMOOTH = 0.96, 360, 11
RATE, MOMENTUM = 0.1, 0.9
LIMIT = timedelta(seconds=300)
SMALL: dict[str, Any] = {"compress_least": 0, "two_d": True}  # the model's buckets are small
NESTEROV: dict[str, Any] = {"outer_lr": 0.7, "outer_momentum": 0.9}  # as in DiLoCo's paper
METHODS: dict[str, dict[str, Any] | None] = {
    "dense (DDP)": None,
    "2D bf16": {"wire": "bf16", "two_d": True},
    "2D int8": {"method": "int8", **SMALL},
    "2D int8, no feedback": {"method": "int8", "feedback": False, **SMALL},
    "2D int4": {"method": "int4", **SMALL},
    "int4, last by PowerSGD rank 16": {
        "method": "int4",
        "last": "powersgd",
        "matrix_rank": 16,
        "compress_least": 0,
    },
    "int4, last by PowerSGD rank 16 in bf16": {
        "method": "int4",
        "last": "powersgd",
        "matrix_rank": 16,
        "factors": "bf16",
        "compress_least": 0,
    },
    "2D dense, every 5 steps": {"every": 5, **NESTEROV, **SMALL},
    "2D dense, every 30 steps": {"every": 30, **NESTEROV, **SMALL},
    "2D int8, every 30 steps": {"method": "int8", "every": 30, **NESTEROV, **SMALL},
    "2D dense, every 5 steps, averaged": {"every": 5, **SMALL},
    "2D dense, every 30 steps, averaged": {"every": 30, **SMALL},
    "2D int8, every 30 steps, averaged": {"method": "int8", "every": 30, **SMALL},
    "2D int4, every 30 steps, averaged": {"method": "int4", "every": 30, **SMALL},
    "2D int4, every 30 steps, averaged, 3 fragments, delay 2": {
        "method": "int4",
        "every": 30,
        "fragments": 3,
        "delay": 2,
        **SMALL,
    },
    "PowerSGD rank 2": {"method": "powersgd", "matrix_rank": 2, "compress_least": 0},
    "PowerSGD rank 4": {"method": "powersgd", "matrix_rank": 4, "compress_least": 0},
    "PowerSGD rank 8": {"method": "powersgd", "matrix_rank": 8, "compress_least": 0},
    "PowerSGD rank 16": {"method": "powersgd", "matrix_rank": 16, "compress_least": 0},
    "top-k 10 %": {"method": "topk", "ratio": 0.1, "compress_least": 0},
    "2D top-k 10 % fp16": {"method": "topk", "ratio": 0.1, "values": "fp16", **SMALL},
    "2D top-k 1 % fp16": {"method": "topk", "ratio": 0.01, "values": "fp16", **SMALL},
    "2D top-k 1 % fp16, warm-up": {
        "method": "topk",
        "ratio": 0.01,
        "values": "fp16",
        "warmup_steps": 88,
        **SMALL,
    },
    "2D top-k 1 %, momentum correction, warm-up": {
        "method": "topk",
        "ratio": 0.01,
        "momentum": MOMENTUM,
        "warmup_steps": 88,
        "dense_below_2d": False,
        **SMALL,
    },
    "2D top-k 1 %, no feedback": {"method": "topk", "ratio": 0.01, "feedback": False, **SMALL},
    # the shards of FSDP2
    "FSDP2": {"shards": True},
    "FSDP2 bf16, gather bf16": {"shards": True, "wire": "bf16", "gather": "bf16"},
    "FSDP2 int8": {"shards": True, "method": "int8", "compress_least": 0},
    "FSDP2 int8, no feedback": {
        "shards": True,
        "method": "int8",
        "feedback": False,
        "compress_least": 0,
    },
    "FSDP2 int8, gather int8": {
        "shards": True,
        "method": "int8",
        "gather": "int8",
        "compress_least": 0,
    },
    "FSDP2 int4": {"shards": True, "method": "int4", "compress_least": 0},
}


def data(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pictures and labels for training and for the test, divided by the seed."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        sys.exit("error: the digits come with scikit-learn\n\nhint: pip install scikit-learn")
    found = load_digits()
    order = torch.randperm(len(found.target), generator=torch.Generator().manual_seed(seed))
    pictures = torch.tensor(found.data, dtype=torch.float32)[order] / 16
    labels = torch.tensor(found.target)[order]
    return pictures[TESTED:], labels[TESTED:], pictures[:TESTED], labels[:TESTED]


def wrapped(layers: nn.Sequential, words: dict[str, Any] | None) -> nn.Module:
    """The model in DDP, or sharded by FSDP2."""
    if words and "shards" in words:
        for layer in (*layers[::2], layers):
            fully_shard(layer)
        return layers
    # a last bucket wants one before it
    return DistributedDataParallel(layers, bucket_cap_mb=0.1 if words and "last" in words else 25)


def attached_to(
    net: nn.Module, words: dict[str, Any] | None, optimizer: torch.optim.Optimizer
) -> Any:
    """What exchanges for a model; None: DDP itself."""
    if words is None:
        return None
    settings = busbw_accel.Settings(**{name: words[name] for name in words if name != "shards"})
    if "shards" in words:
        return busbw_accel.attach_fully_sharded(net, settings=settings)
    return busbw_accel.attach(net, settings, optimizer=optimizer)


def train(words: dict[str, Any] | None, seed: int, epochs: int) -> dict[str, float]:
    """One training: accuracy at the end, steps to the target (infinite if not reached), and
    bytes that left this rank's host.
    """
    pictures, labels, unseen, right = data(seed)
    torch.manual_seed(seed)
    layers = nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )
    net = wrapped(layers, words)
    corrected = words is not None and words.get("momentum")
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.0 if corrected else MOMENTUM)
    attached = attached_to(net, words, optimizer)
    rank, step, reached = dist.get_rank(), 0, math.inf
    lately: deque[float] = deque(maxlen=SMOOTH)
    for epoch in range(epochs):
        order = torch.randperm(
            len(labels), generator=torch.Generator().manual_seed(1000 * seed + epoch)
        )
        for first in range(0, len(order) - RANKS * BATCH + 1, RANKS * BATCH):
            mine = order[first + rank * BATCH : first + (rank + 1) * BATCH]
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(pictures[mine]), labels[mine]).backward()
            optimizer.step()
            step += 1
            with torch.no_grad():
                lately.append(
                    float((getattr(net, "module", net)(unseen).argmax(1) == right).float().mean())
                )
            if reached == math.inf and len(lately) == SMOOTH and statistics.fmean(lately) >= TARGET:
                reached = step
    return {
        "accuracy": lately[-1],
        "reached": reached,
        "steps": step,
        "across": attached.traffic.across if attached else 0,
    }


def rank(number: int, folder: Path, seeds: int, epochs: int) -> None:
    """What each rank runs; rank 0 writes the results of every training."""
    os.environ["NCCL_HOSTID"] = f"host{number * HOSTS // RANKS}"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(str(folder / "store"), RANKS),
        rank=number,
        world_size=RANKS,
        timeout=LIMIT,
    )
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - every communication worker says what it does
    found = {
        name: [train(words, seed, epochs) for seed in range(seeds)]
        for name, words in METHODS.items()
    }
    if number == 0:
        (folder / "found").write_text(json.dumps(found), encoding="utf-8")
    os._exit(0)


def interval(values: list[float]) -> tuple[float, float]:
    """Mean, and half of its 95 % interval by Student's t."""
    t = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}.get(
        len(values), 2.0
    )
    mean = statistics.fmean(values)
    return mean, t * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def report(found: dict[str, list[dict[str, float]]]) -> str:
    """One line per method; differences are paired, seed by seed, with the dense run."""
    dense = found["dense (DDP)"]
    lines = [
        f"{'':56} {'accuracy %':>14} {'less than dense':>16} {'steps to 96 %':>14} {'of dense':>9}"
        f" {'KB a step':>10}"
    ]
    for name, runs in found.items():
        mean, half = interval([100 * run["accuracy"] for run in runs])
        loss, around = interval(
            [
                100 * (base["accuracy"] - run["accuracy"])
                for base, run in zip(dense, runs, strict=True)
            ]
        )
        steps = statistics.fmean(run["reached"] for run in runs)
        more = statistics.fmean(
            run["reached"] / base["reached"] for base, run in zip(dense, runs, strict=True)
        )
        sent = statistics.fmean(run["across"] / run["steps"] for run in runs) / 1e3
        lines.append(
            f"{name:56} {mean:8.2f} +-{half:4.2f} {loss:10.2f} +-{around:4.2f} {steps:14.0f}"
            f" {more:8.2f}x {sent:10.1f}"
        )
    return "\n".join(lines)


def _forked(act: Callable[[int], None]) -> None:
    children = []
    for number in range(RANKS):
        child = os.fork()
        if child == 0:
            act(number)
        children.append(child)
    for child in children:
        if os.waitpid(child, 0)[1]:
            sys.exit("error: a rank failed, its words stand above")


def main() -> int:
    """Fork the ranks, print and write the results."""
    if len(sys.argv) > 4:
        wanted = ["dense (DDP)", *sys.argv[4].split(";")]
        for name in [name for name in METHODS if name not in wanted]:
            del METHODS[name]
    seeds, epochs = (
        int(sys.argv[2]) if len(sys.argv) > 2 else SEEDS,
        (int(sys.argv[3]) if len(sys.argv) > 3 else EPOCHS),
    )
    with tempfile.TemporaryDirectory() as folder:
        _forked(lambda number: rank(number, Path(folder), seeds, epochs))
        found = json.loads((Path(folder) / "found").read_text(encoding="utf-8"))
    sys.stdout.write(report(found) + "\n")
    if len(sys.argv) > 1:
        words = {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "epochs": epochs,
            "found": found,
        }
        Path(sys.argv[1]).write_text(json.dumps(words, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
