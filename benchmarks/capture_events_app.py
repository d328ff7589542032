"""An application whose calls are timed by CUDA events: PyTorch, one process a GPU, with
busbw's profiler plugin. capture_events.py starts it.

capture_events_app.py script CALLS FILE     capture_app.py's script; FILE.RANK.json lists the calls
capture_events_app.py accuracy FILE         calls between events of its own; FILE.RANK.json has
    their times
capture_events_app.py train FILE LIBRARY PAIRS    a DDP training of a GPT-2 whose steps are timed
    with NCCL's events off, cheap and timed in turn; rank 0 writes FILE
capture_events_app.py steps FILE            the same training alone; rank 0 writes a step's time
"""

import ctypes
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from capture_app import run_script
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

SIZES = tuple(mib << 20 for mib in (4, 16, 64, 256))  # bytes of a rank's part
REPEATS = 40
LAYERS, HEADS, WIDTH, VOCABULARY, BLOCK, BATCH = 12, 12, 768, 50304, 256, 8
WARM, SETTLE, STEPS = 30, 3, 20  # steps before all, before each block, and in it
KERNEL_LAUNCH = 0x800


class Layer(nn.Module):
    """One layer of GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention, then the MLP."""
        batch, tokens, _ = x.shape
        parts = self.qkv(self.before(x)).split(WIDTH, 2)
        heads = [part.view(batch, tokens, HEADS, -1).transpose(1, 2) for part in parts]
        mixed = scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.mlp(self.between(x))


class Gpt(nn.Module):
    """GPT-2 of 124 million parameters, run layer by layer: its steps wait for the host."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(BLOCK, WIDTH)
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logits."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.layers(self.tokens(tokens) + self.positions(places))))


def training() -> Callable[[], None]:
    """A function that makes one step."""
    model = nn.parallel.DistributedDataParallel(Gpt().cuda(), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(VOCABULARY, (BATCH, BLOCK + 1), device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()

    return step


def block_ms(step: Callable[[], None]) -> float:
    """Milliseconds of a step, over a block of them."""
    for _ in range(SETTLE):
        step()
    dist.barrier()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / STEPS * 1e3


def train(library: str, pairs: int) -> dict[str, list[float]]:
    """Milliseconds of a step in each block, by what NCCL reports in it."""
    step = training()
    for _ in range(WARM):
        step()
    mask = ctypes.CDLL(library).busbw_capture_mask
    own = mask(0)
    kinds = {"off": 0, "cheap": own & ~KERNEL_LAUNCH, "timed": own}
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    names = list(kinds)
    for pair in range(pairs):
        for at in range(len(names)):
            name = names[(pair + at) % len(names)]
            mask(kinds[name])
            taken[name].append(block_ms(step))
    mask(own)
    return taken


def accuracy() -> list[dict]:
    """Each call's function, elements and microseconds between events around it."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    one = torch.ones(max(SIZES) // 4, device="cuda")
    two = torch.ones(max(SIZES) // 4, device="cuda")
    calls = []
    for size in SIZES:
        part = size // 4 // ranks
        functions: dict[str, tuple[int, Callable[[], object]]] = {
            "all_reduce": (size // 4, lambda size=size: dist.all_reduce(one[: size // 4])),
            "all_gather": (
                part,
                lambda part=part: dist.all_gather_into_tensor(one[: part * ranks], two[:part]),
            ),
            "reduce_scatter": (
                part,
                lambda part=part: dist.reduce_scatter_tensor(two[:part], one[: part * ranks]),
            ),
            "broadcast": (size // 4, lambda size=size: dist.broadcast(one[: size // 4], 0)),
        }
        for function, (count, run) in functions.items():
            pairs = []
            for _ in range(REPEATS):
                events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
                events[0].record()
                run()
                events[1].record()
                pairs.append(events)
            torch.cuda.synchronize()
            calls += [
                {"function": function, "count": count, "us": first.elapsed_time(last) * 1e3}
                for first, last in pairs
            ]
    if rank == 0:
        print(len(calls), "calls", flush=True)
    return calls


def write(path: str, found: object) -> None:
    """Write a result."""
    Path(path).write_text(json.dumps(found), encoding="utf-8")


def main() -> None:
    """Join, run, write."""
    part, rank = sys.argv[1], int(os.environ["RANK"])
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("nccl")
    if part == "script":
        run_script(int(sys.argv[2]), sys.argv[3])
    elif part == "accuracy":
        write(f"{sys.argv[2]}.{rank}.json", accuracy())
    elif part == "train":
        found = train(sys.argv[3], int(sys.argv[4]))
        if rank == 0:
            write(sys.argv[2], found)
    else:
        step = training()
        for _ in range(WARM):
            step()
        blocks = [block_ms(step) for _ in range(5)]
        if rank == 0:
            write(sys.argv[2], statistics.median(blocks))
    dist.barrier()
    torch.cuda.synchronize()
    if part != "script":  # its last times are read as the process ends
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
