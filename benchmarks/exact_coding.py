"""How many bytes coded gradients take, and how fast they are coded: `python
benchmarks/exact_coding.py MODEL PRECISION STEPS FILE`.

One process trains a model of `busbw train` on the CPU. PRECISION is fp32, bf16 (autocast, so that
gradients are fp32) or pure-bf16 (weights and gradients in bf16). After STEPS steps it makes the
gradients of 4 ranks, each of samples of its own, and codes those that ranks exchange: a rank's
gradient, and the averages of 2 and 4 ranks, in shards of 25 MB as DDP's buckets. Rates are those of
one thread by its processor time, medians of 5 over all shards. Prints a line for each gradient and
adds it to FILE.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from busbw_accel.codecs import coder
from busbw_accel.train.loop import TrainingLoop, scaler_for
from busbw_accel.train.models import BY_NAME
from busbw_accel.train.types import TrainSpec

RANKS, SHARD_BYTES, REPEATS = 4, 25 << 20, 5
SHAPES = {"gpt2": (1, 128), "resnet50": (4, 128)}  # batch size and tokens


def seconds(call: Callable[[], object]) -> float:
    """Processor time, which other programs on the same cores hardly change."""
    times = []
    for _ in range(REPEATS):
        begun = time.thread_time()
        call()
        times.append(time.thread_time() - begun)
    return statistics.median(times)


def coded(flat: torch.Tensor) -> dict[str, float]:
    """The share of its bytes that a gradient takes, and GB/s of plain bytes."""
    shards = flat.split(SHARD_BYTES // flat.element_size())
    messages = [torch.empty(coder.message_bytes(shard), dtype=torch.uint8) for shard in shards]
    back = [torch.empty_like(shard) for shard in shards]
    coding_s = seconds(lambda: list(map(coder.write, shards, messages)))
    decoding_s = seconds(lambda: list(map(coder.read, messages, back)))
    assert torch.equal(torch.cat(back).view(torch.uint8), flat.view(torch.uint8))
    return {
        "share": sum(int(message.view(torch.int64)[0]) for message in messages) / flat.nbytes,
        "code_gb_s": flat.nbytes / coding_s / 1e9,
        "decode_gb_s": flat.nbytes / decoding_s / 1e9,
    }


class Ranks:
    """Replicas of one model, each with samples of its own, trained in turn."""

    def __init__(self, name: str, precision: str) -> None:
        torch.manual_seed(7)
        batch, tokens = SHAPES.get(name, (4, 64))
        pure = precision == "pure-bf16"
        self.spec = TrainSpec(
            model=name, batch_size=batch, sequence=tokens, precision="fp32" if pure else precision
        )
        model, device = BY_NAME[name], torch.device("cpu")
        self.net = model.build(self.spec)
        self.loop = TrainingLoop(self.spec, model, self.net, device, scaler_for("fp32", device))
        self.samples = [
            model.samples(self.spec, torch.Generator().manual_seed(rank)) for rank in range(RANKS)
        ]
        if pure:
            self.net.bfloat16()
            self.samples = [
                (inputs.bfloat16() if inputs.is_floating_point() else inputs, targets)
                for inputs, targets in self.samples
            ]
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=3e-4)

    def gradient(self, rank: int) -> torch.Tensor:
        self.loop.inputs, self.loop.targets = self.samples[rank]
        self.optimizer.zero_grad()
        with self.loop._precision():
            scores = self.net(self.loop.inputs)
            loss = torch.nn.functional.cross_entropy(
                scores.flatten(0, -2), self.loop.targets.flatten()
            )
        loss.backward()
        return torch.cat(
            [weight.grad.flatten() for weight in self.net.parameters() if weight.grad is not None]
        )


def main(name: str, precision: str, steps: int, file: Path) -> None:
    """Trains, and prints and writes what gradients take."""
    ranks = Ranks(name, precision)
    for step in range(steps):
        ranks.gradient(step % RANKS)
        ranks.optimizer.step()
    gradients = [ranks.gradient(rank) for rank in range(RANKS)]
    for count in (1, 2, 4):
        total = sum(gradient.float() * (1 / count) for gradient in gradients[:count])
        flat = total.to(gradients[0].dtype)
        line = {"model": name, "precision": precision, "step": steps, "ranks": count}
        line |= {"dtype": str(flat.dtype), "bytes": flat.nbytes, **coded(flat)}
        print(json.dumps(line), flush=True)
        with file.open("a") as out:
            out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
