"""An application whose calls are timed by CUDA events: PyTorch, one process a GPU, with
busbw's profiler plugin. capture_events.py starts it.

capture_events_app.py script CALLS FILE     capture_app.py's script; FILE.RANK.json lists the calls
capture_events_app.py accuracy FILE LIBRARY    calls between events of its own, in turn with calls
    that NCCL reports to busbw's plugin LIBRARY; FILE.RANK.json has the times of the former
capture_events_app.py train FILE LIBRARY PAIRS    a DDP training of a GPT-2 whose steps are timed
    with NCCL's events off and as the plugin asks for them, in turn; rank 0 writes FILE
capture_events_app.py steps FILE            the same training alone; rank 0 writes a step's time
"""

import ctypes
import json
import os
import random
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
TURNS, CALLS_A_TURN = 10, 4
HOLD_CYCLES = 20_000_000  # of a GPU: some 10 ms, in which the host enqueues the calls of a turn
LAYERS, HEADS, WIDTH, VOCABULARY, BLOCK, BATCH = 12, 12, 768, 50304, 256, 8
WARM, STEPS = 30, 40  # steps before all, and of each kind in a pair


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


def step_ms(step: Callable[[], None]) -> float:
    """Milliseconds of one step, until the GPU is done."""
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def train(library: str, pairs: int) -> dict[str, list[float]]:
    """The median of the steps of each pair in milliseconds: `off`, of which NCCL reports nothing,
    and `on`, of which it reports what the plugin asks for.

    Both take turns from step to step, so that a machine that slows down for a second slows both.
    """
    step = training()
    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    mask = ctypes.CDLL(library).busbw_capture_mask
    own = mask(0)
    kinds = {"off": 0, "on": own}
    names, dice = list(kinds), random.Random(1)  # the same on all ranks
    medians: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(pairs):
        taken: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(STEPS):
            for name in dice.sample(names, len(names)):
                mask(kinds[name])
                taken[name].append(step_ms(step))
        for name, values in taken.items():
            medians[name].append(statistics.median(values))
    mask(own)
    return medians


def functions_of(size: int) -> dict[str, tuple[int, Callable[[], object]]]:
    """Each function, its elements as NCCL counts them, and a call whose larger buffer is `size`."""
    ranks = dist.get_world_size()
    one, two = (torch.ones(size // 4, device="cuda") for _ in range(2))
    part = two[: size // 4 // ranks]
    return {
        "all_reduce": (one.numel(), lambda: dist.all_reduce(one)),
        "all_gather": (part.numel(), lambda: dist.all_gather_into_tensor(one, part)),
        "reduce_scatter": (part.numel(), lambda: dist.reduce_scatter_tensor(part, one)),
        "broadcast": (one.numel(), lambda: dist.broadcast(one, 0)),
    }


def accuracy(library: str) -> list[dict]:
    """Each call's function, elements and microseconds between events around it.

    Each is followed by a call that NCCL reports. A kernel holds the GPU until all calls of a turn
    are enqueued, and a call before them lets the ranks begin together: so no interval has the
    host's time in it.
    """
    dist.all_reduce(torch.ones(1, device="cuda"))  # the communicator gives the plugin its mask
    mask = ctypes.CDLL(library).busbw_capture_mask
    own = mask(0)
    assert own > 0, f"the plugin records nothing: {own}"
    calls = []
    for size in SIZES:
        for function, (count, run) in functions_of(size).items():
            pairs = []
            for _ in range(TURNS):
                torch.cuda._sleep(HOLD_CYCLES)
                run()
                for _ in range(CALLS_A_TURN):
                    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
                    events[0].record()
                    run()
                    events[1].record()
                    pairs.append(events)
                    mask(own)
                    run()
                    mask(0)
                torch.cuda.synchronize()
            calls += [
                {"function": function, "count": count, "us": first.elapsed_time(last) * 1e3}
                for first, last in pairs
            ]
    mask(own)
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
        write(f"{sys.argv[2]}.{rank}.json", accuracy(sys.argv[3]))
    elif part == "train":
        found = train(sys.argv[3], int(sys.argv[4]))
        if rank == 0:
            write(sys.argv[2], found)
    else:
        step = training()
        for _ in range(WARM):
            step()
        taken = [step_ms(step) for _ in range(100)]
        if rank == 0:
            write(sys.argv[2], statistics.median(taken))
    dist.barrier()
    torch.cuda.synchronize()
    if part != "script":  # its last times are read as the process ends
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
