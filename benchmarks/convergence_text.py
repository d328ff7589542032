"""The cost of compression for a language model in steps and time: `convergence_text.py FILE.json
[--layers 4 --width 256 --steps 600 ...]`.

Run on every rank, with the variables of torchrun: by gpu_hosts.py, so that steps include their
link. A byte-level GPT learns the help topics that come with Python; every tenth part of them is
kept for the test. A method has the same initial parameters and batches as the dense run of its
seed, and --dense steps in common with it; AdamW, after a warm-up with a constant rate, or with
--decay one that falls to LAST of it by a cosine. Prints the share of the test's bytes predicted
correctly at the end, the loss, and the steps and seconds until the dense runs' mean at SHARE of
their steps is first reached. A training is measured every EVERY steps; the time of measuring does
not count.
"""

import argparse
import json
import math
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from convergence import interval
from torch import nn

from busbw_accel.train.bench import WrappedModel, wrap
from busbw_accel.train.loop import scaler_for
from busbw_accel.train.methods import parse
from busbw_accel.train.models import Gpt

METHODS = (
    "none,bf16,int8,int4,int4+last=powersgd+matrix_rank=8,powersgd,powersgd+matrix_rank=8"
    ",topk+ratio=0.1,topk,torch-powersgd"
)
SMALL = "+compress_least=0"  # the model's buckets are small
# steps, samples of the test, and the measurements whose mean counts
EVERY, TESTED, SMOOTH = 10, 64, 3
SHARE = 0.6
WARMUP, RATE, LAST = 50, 1e-3, 0.1
HEADS, BYTES = 4, 256


def text() -> torch.Tensor:
    """All topics, as bytes."""
    from pydoc_data import topics

    whole = "\n".join(topics.topics[name] for name in sorted(topics.topics))
    return torch.frombuffer(bytearray(whole.encode()), dtype=torch.uint8).long()


class Samples:
    """Sequences of the text: nine of ten parts for training, the tenth for the test."""

    def __init__(self, sequence: int, device: torch.device) -> None:
        whole, self.sequence = text(), sequence
        parts = whole.split(10 * (sequence + 1))
        self.learned = torch.cat([part for number, part in enumerate(parts) if number % 10]).to(
            device
        )
        kept = torch.cat([part for number, part in enumerate(parts) if number % 10 == 0])
        rows = kept[: kept.numel() // (sequence + 1) * (sequence + 1)].view(-1, sequence + 1)
        self.test = rows[:: max(1, len(rows) // TESTED)][:TESTED].to(device)

    def batch(self, made: torch.Generator, size: int) -> torch.Tensor:
        """A batch of sequences of the text: [size, sequence + 1]."""
        first = torch.randint(self.learned.numel() - self.sequence, (size, 1), generator=made)
        return self.learned[(first + torch.arange(self.sequence + 1)).to(self.learned.device)]


def rate_at(step: int, asked: argparse.Namespace) -> float:
    """The share of the learning rate in a step."""
    rate = min(1.0, (step + 1) / WARMUP)
    if asked.decay:
        part = max(0, step - WARMUP) / max(1, asked.steps - WARMUP)
        rate *= LAST + (1 - LAST) * (1 + math.cos(math.pi * part)) / 2
    return rate


def with_method(
    model: nn.Module,
    name: str,
    asked: argparse.Namespace,
    device: torch.device,
    optimizer: torch.optim.Optimizer,
) -> WrappedModel:
    """The model under DistributedDataParallel with a method."""
    small = "" if name == "none" or name.startswith("torch") else SMALL
    scaler = scaler_for("fp32", device)
    return wrap(model, parse(name + small), device, asked.bucket_mb, scaler, optimizer)


def train(
    name: str, seed: int, asked: argparse.Namespace, samples: Samples, device: torch.device
) -> dict[str, Any]:
    """One training: the share of the test predicted correctly, its loss in bits per byte and the
    seconds so far, every EVERY steps; and bytes a step.
    """
    torch.manual_seed(seed)
    model = Gpt(asked.layers, asked.width, HEADS, BYTES, asked.sequence).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=asked.rate)
    wrapped = None
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_at(step, asked))
    made = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    right: list[float] = []
    bits: list[float] = []
    seconds: list[float] = []
    taken = 0.0
    for step in range(0, asked.steps, EVERY):
        if step in (0, asked.dense):
            if wrapped is not None:
                wrapped.close()
            wrapped = with_method(
                model, name if step == asked.dense else "none", asked, device, optimizer
            )
        assert wrapped is not None
        dist.barrier()
        begun = time.perf_counter()
        for _ in range(EVERY):
            batch = samples.batch(made, asked.batch)
            optimizer.zero_grad()
            nn.functional.cross_entropy(
                wrapped.net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()
            ).backward()
            optimizer.step()
            rate.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        taken += time.perf_counter() - begun
        with torch.no_grad():
            scores, wanted = model(samples.test[:, :-1]), samples.test[:, 1:]
        right.append(float((scores.argmax(-1) == wanted).float().mean()))
        bits.append(
            float(nn.functional.cross_entropy(scores.flatten(0, 1), wanted.flatten())) / math.log(2)
        )
        seconds.append(taken)
    assert wrapped is not None
    sent = wrapped.mark() / (asked.steps - asked.dense) if wrapped.attached else None
    wrapped.close()
    return {"right": right, "bits": bits, "seconds": seconds, "sent": sent}


def smoothed(right: list[float]) -> list[float]:
    """The mean of the last measurements, at each."""
    return [statistics.fmean(right[max(0, at - SMOOTH + 1) : at + 1]) for at in range(len(right))]


def reached(run: dict[str, Any], target: float) -> tuple[float, float]:
    """Steps and seconds until the target, interpolated between two measurements; infinite if it
    is not reached.
    """
    curve = smoothed(run["right"])
    for at, value in enumerate(curve):
        if value >= target:
            before, last, low = (
                (0.0, 0, 0.0) if at == 0 else (run["seconds"][at - 1], at, curve[at - 1])
            )
            part = (target - low) / (value - low) if value > low else 1.0
            return EVERY * (last + part), before + part * (run["seconds"][at] - before)
    return math.inf, math.inf


def above(run: dict[str, Any], dense: dict[str, Any]) -> float:
    """How much higher the loss on the test is at the end, in per cent."""
    return 100 * (smoothed(run["bits"])[-1] / smoothed(dense["bits"])[-1] - 1)


def report(found: dict[str, list[dict[str, Any]]]) -> str:
    """One line per method; differences and ratios are paired, seed by seed, with the dense run."""
    dense = next(iter(found.values()))
    at = int(SHARE * len(dense[0]["right"]))
    target = statistics.fmean(smoothed(run["right"])[at] for run in dense)
    width = max(26, *map(len, found))
    lines = [
        f"{'':{width}} {'right at the end, %':>20} {'less than dense':>16} {'higher loss, %':>15}"
        f" {f'steps to {100 * target:.1f} %':>16} {'of dense':>14} {'seconds':>8} {'of dense':>9}"
        f" {'KB a step':>10}"
    ]
    lines += [f"{name:{width}} {row(runs, dense, target)}" for name, runs in found.items()]
    return "\n".join(lines)


def row(runs: list[dict[str, Any]], dense: list[dict[str, Any]], target: float) -> str:
    """The figures of a method. `target`: the share of bytes to reach."""
    pairs = list(zip(runs, dense, strict=True))
    ends = [(smoothed(run["right"])[-1], smoothed(base["right"])[-1]) for run, base in pairs]
    mean, half = interval([100 * end for end, _ in ends])
    less, around = interval([100 * (base - end) for end, base in ends])
    loss, about = interval([above(run, base) for run, base in pairs])
    times = [(reached(run, target), reached(base, target)) for run, base in pairs]
    steps, seconds = (statistics.fmean(own[which] for own, _ in times) for which in (0, 1))
    more, width = math.inf, 0.0
    if steps < math.inf:
        more, width = interval([own[0] / base[0] for own, base in times])
    longer = statistics.fmean(own[1] / base[1] for own, base in times)
    sent = "-"
    if runs[0]["sent"] is not None:
        sent = f"{statistics.fmean(run['sent'] for run in runs) / 1e3:.1f}"
    return (
        f"{mean:12.2f} +-{half:5.2f} {less:9.2f} +-{around:4.2f} {loss:9.2f} +-{about:4.2f}"
        f" {steps:15.0f} {more:7.2f} +-{width:4.2f} {seconds:8.1f} {longer:8.2f}x {sent:>10}"
    )


def main() -> int:
    """Every seed of every method, in turn; rank 0 prints and writes the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--methods", default=METHODS)
    for name, value in {
        "layers": 4,
        "width": 256,
        "sequence": 128,
        "batch": 32,
        "steps": 600,
        "seeds": 5,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument(
        "--bucket-mb",
        type=float,
        default=0.25,
        help="so small, and the last bucket is that of the embeddings",
    )
    parser.add_argument("--rate", type=float, default=RATE, help="of AdamW")
    parser.add_argument("--decay", action="store_true")
    parser.add_argument("--dense", type=int, default=0, help="steps by plain DDP before a method")
    asked = parser.parse_args()
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("cuda:nccl,cpu:gloo" if device.type == "cuda" else "gloo")
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - every communication worker says what it does
        sys.stderr = nowhere
        samples = Samples(asked.sequence, device)
        names = asked.methods.split(",")
        train(
            names[-1],
            99,
            argparse.Namespace(**{**vars(asked), "steps": 2 * EVERY, "dense": 0}),
            samples,
            device,
        )  # kernels are compiled, caches filled
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for seed in range(asked.seeds):
            for name in names:
                found[name].append(train(name, seed, asked, samples, device))
    if dist.get_rank() == 0:
        sys.stdout.write(report(found) + "\n")
        settings = {name: value for name, value in vars(asked).items() if name != "file"}
        host = {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": str(device),
            "every": EVERY,
        }
        asked.file.write_text(
            json.dumps({**host, **settings, "found": found}) + "\n", encoding="utf-8"
        )
        sys.stdout.flush()
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
