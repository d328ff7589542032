"""Steps of a fully sharded (FSDP2) transformer by each way to exchange its shards:
`fsdp_steps.py MODEL PRECISION BATCH [FILE.json [BLOCKS]]`.

Started by torchrun or gpu_hosts.py, with a rank on each host:

    gpu_hosts.py --cpus 0.2 each fsdp_steps.py gpt-small fp32 4 steps.json
    gpu_hosts.py 25 each fsdp_steps.py gpt2 bf16 8 steps.json
    gpu_hosts.py 25 each fsdp_steps.py gpt2 autocast 4 steps.json 2

PRECISION: FSDP2 gathers fp32 parameters, which is its default, with fp32, tf32 (products in TF32)
and autocast (the forward under autocast to bf16), and bf16 ones with bf16. The optimizer's
parameters and the sums of gradients are fp32. A unit, which is gathered and reduced at once, has
BLOCKS blocks of the model (default 1). The ways train in turn, for ROUNDS rounds of STEPS
steps each, after a round that is not timed. A time is that of a round on the slowest rank, which
waits for the device at its end, as a training does now and then. Bytes are those that a host's
interface has sent in a step, and those counted by the worker. `silent`: a step that sends nothing.
"""

import json
import os
import platform
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import busbw_accel
from busbw_accel import Settings
from busbw_accel.train.loop import set_matmul_precision
from busbw_accel.train.models import BY_NAME
from busbw_accel.train.types import TrainSpec

ROUNDS, STEPS = 5, 4
WAYS: dict[str, Settings | None] = {
    "FSDP2": None,
    "same": Settings(),
    "bf16": Settings(wire="bf16"),
    "bf16, gather bf16": Settings(wire="bf16", gather="bf16"),
    "int8": Settings(method="int8"),
    "int8, gather bf16": Settings(method="int8", gather="bf16"),
    "int8, gather int8": Settings(method="int8", gather="int8"),
}


@dataclass
class Way:
    """A model that is trained in one way, and what was measured of its steps."""

    net: nn.Module
    optimizer: torch.optim.Optimizer
    attached: busbw_accel.Sharded | None
    seconds: list[float] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    silent: list[float] = field(default_factory=list)

    def traffic(self) -> int:
        return self.attached.traffic.across if self.attached else 0


def sent_bytes() -> int:
    """Bytes sent by this host's interfaces except loopback."""
    lines = Path("/proc/net/dev").read_text(encoding="utf-8").splitlines()[2:]
    fields = [line.replace(":", " ").split() for line in lines]
    return sum(int(words[9]) for words in fields if words[0] != "lo")


def made(spec: TrainSpec, settings: Settings | None, device: torch.device, blocks: int) -> Way:
    """A way with the same initial parameters as all others, and so many blocks in a unit."""
    torch.manual_seed(0)
    net = BY_NAME[spec.model].build(spec).to(device)
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if spec.precision == "bf16" else None, reduce_dtype=torch.float32
    )
    every = list(net.blocks)
    for first in range(0, len(every), blocks):
        fully_shard(every[first : first + blocks], mp_policy=policy)
    fully_shard(net, mp_policy=policy)
    attached = None
    if settings is not None:
        attached = busbw_accel.attach_fully_sharded(net, settings=settings)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=device.type == "cuda")
    return Way(net, optimizer, attached)


def train(
    way: Way, inputs: torch.Tensor, targets: torch.Tensor, autocast: bool
) -> tuple[float, float]:
    """STEPS steps: the seconds of one on the slowest rank, and this rank's last loss."""
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(STEPS):
        way.optimizer.zero_grad()
        with torch.autocast(inputs.device.type, torch.bfloat16, enabled=autocast):
            scores = way.net(inputs).flatten(0, 1)
        loss = nn.functional.cross_entropy(scores.float(), targets.flatten())
        loss.backward()
        way.optimizer.step()
    last = float(loss.detach())  # waits for the device
    seconds = torch.tensor((time.perf_counter() - begun) / STEPS, dtype=torch.float64)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return float(seconds), last


def main(model: str, precision: str, batch: str, file: str = "", blocks: str = "1") -> None:
    """Rank 0 prints a line for each way, and writes all samples."""
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
        dist.init_process_group("cuda:nccl,cpu:gloo", device_id=device)
    else:
        dist.init_process_group("gloo")
    set_matmul_precision(precision)
    spec = TrainSpec(model=model, precision=precision, batch_size=int(batch))
    ways = {name: made(spec, settings, device, int(blocks)) for name, settings in WAYS.items()}
    generator = torch.Generator().manual_seed(dist.get_rank())
    samples = BY_NAME[model].samples
    assert samples is not None
    inputs, targets = (tensor.to(device) for tensor in samples(spec, generator))
    autocast = precision == "autocast"
    for number in range(ROUNDS + 1):
        for way in ways.values():
            sent, counted = sent_bytes(), way.traffic()
            seconds, loss = train(way, inputs, targets, autocast)
            sent = sent_bytes() - sent  # now all of it has arrived
            way.losses.append(loss)
            if number:
                way.seconds.append(seconds)
                way.sent.append(sent // STEPS)
                way.counted.append((way.traffic() - counted) // STEPS)
    for way in ways.values():  # last, since parameters are wrong afterwards
        if way.attached is not None:
            with way.attached.silent():
                way.silent = [train(way, inputs, targets, autocast)[0] for _ in range(3)]
    if dist.get_rank() == 0:
        print(report(ways))
        if file:
            write(Path(file), spec, ways)
    dist.barrier()
    os._exit(0)


def report(ways: dict[str, Way]) -> str:
    """One line for each way."""
    first = statistics.median(ways["FSDP2"].seconds)
    lines = [
        f"{'':20} {'step ms':>8} {'least':>8} {'most':>8} {'faster':>7} {'MB sent':>8}"
        f" {'counted':>8} {'last loss':>9} {'silent ms':>9}"
    ]
    for name, way in ways.items():
        median = statistics.median(way.seconds)
        silent = f"{1e3 * statistics.median(way.silent):.1f}" if way.silent else "-"
        lines.append(
            f"{name:20} {1e3 * median:8.1f} {1e3 * min(way.seconds):8.1f}"
            f" {1e3 * max(way.seconds):8.1f} {first / median:6.2f}x"
            f" {1e-6 * statistics.median(way.sent):8.2f}"
            f" {1e-6 * statistics.median(way.counted):8.2f} {way.losses[-1]:9.4f}"
            f" {silent:>9}"
        )
    return "\n".join(lines)


def write(file: Path, spec: TrainSpec, ways: dict[str, Way]) -> None:
    """All samples, and where they were measured."""
    machine = {
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
    }
    samples = {
        name: {
            "seconds": way.seconds,
            "sent": way.sent,
            "counted": way.counted,
            "losses": way.losses,
            "silent": way.silent,
        }
        for name, way in ways.items()
    }
    words = {
        "machine": machine,
        "model": spec.model,
        "precision": spec.precision,
        "batch": spec.batch_size,
        "parameters": sum(parameter.numel() for parameter in ways["FSDP2"].net.parameters()),
        "ways": samples,
    }
    file.write_text(json.dumps(words, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
