"""A small GPT that is served with tensor parallelism, by PyTorch alone: prefill eager, decode steps
in CUDA graphs, one for each batch size.

    busbw capture --output DIR -- torchrun --nproc-per-node 2 served_gpt.py serve COUNTS.json
    torchrun --nproc-per-node 2 served_gpt.py trace TRACE.json SHARE.json
    served_gpt.py compare DIR/pattern.jsonl COUNTS.json

`serve` writes how many collectives rank 0 made, counted by the program itself: those of a graph
once for each replay. `trace` records some steps with Kineto, and writes the share of the kernels'
time that NCCL's take, added up from the profiler's own events. `compare` holds the all_reduces
of the record against the counts. On CPUs all steps are eager.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

LAYERS, HIDDEN, HEADS, CACHED, PROMPT = 12, 2048, 16, 1024, 512
BATCHES = (1, 8, 32)
REQUESTS, TOKENS, TRACED = 12, 48, 4
# Events of the profiler on the GPU that are no kernels.
ANNOTATIONS, COPIES = ("nccl:", "ProfilerStep"), ("Memcpy", "Memset")


class Counted:
    """all_reduce, and how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, tensor: Any) -> Any:
        import torch.distributed as dist

        self.calls += 1
        dist.all_reduce(tensor)
        return tensor


class Layer:
    """Attention and two products, whose weights are split over the ranks."""

    def __init__(self, ranks: int, reduce: Counted, **place: Any) -> None:
        import torch

        part, self._heads, self._reduce = HIDDEN // ranks, HEADS // ranks, reduce
        shapes = (HIDDEN, 3 * part), (part, HIDDEN), (HIDDEN, 4 * part), (4 * part, HIDDEN)
        self.qkv, self.out, self.up, self.down = (
            torch.randn(shape, **place) / shape[0] ** 0.5 for shape in shapes
        )
        self.cache = torch.zeros(2, max(BATCHES), self._heads, CACHED, HIDDEN // HEADS, **place)

    def decode(self, x: Any) -> Any:
        """One token of each sequence of a batch, with the cache: [batch, HIDDEN]."""
        return self._rest(x, self._heads_of(x)[0].unsqueeze(2), self.cache[:, : len(x)])

    def prefill(self, x: Any) -> Any:
        """All tokens of a prompt: [tokens, HIDDEN]."""
        query, key, value = (part.transpose(0, 1).unsqueeze(0) for part in self._heads_of(x))
        return self._rest(x, query, (key, value))

    def _heads_of(self, x: Any) -> Any:
        return (x @ self.qkv).view(len(x), 3, self._heads, -1).unbind(1)

    def _rest(self, x: Any, query: Any, cache: Any) -> Any:
        from torch.nn.functional import scaled_dot_product_attention

        mixed = scaled_dot_product_attention(query, cache[0], cache[1])
        x = x + self._reduce(mixed.transpose(1, 2).reshape(len(x), -1) @ self.out)
        return x + self._reduce((x @ self.up).relu() @ self.down)


class Server:
    """One rank."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self.on_gpu = torch.cuda.is_available()
        if self.on_gpu:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if self.on_gpu else "gloo")
        self._place = {
            "device": "cuda" if self.on_gpu else "cpu",
            "dtype": torch.bfloat16 if self.on_gpu else torch.float32,
        }
        self.reduce, self.in_graphs = Counted(), 0
        self.layers = [
            Layer(dist.get_world_size(), self.reduce, **self._place) for _ in range(LAYERS)
        ]
        self.decode_steps = {batch: self._step(batch) for batch in BATCHES}

    def _step(self, batch: int) -> Callable[[], object]:
        """What makes one decode step of a batch."""
        import torch

        x = torch.randn(batch, HIDDEN, **self._place)

        def run() -> Any:
            y = x
            for layer in self.layers:
                y = layer.decode(y)
            return y

        run()
        if not self.on_gpu:
            return run
        torch.cuda.synchronize()
        before, graph = self.reduce.calls, torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        captured, self.reduce.calls = self.reduce.calls - before, before

        def replay() -> None:
            self.in_graphs += captured
            graph.replay()

        return replay

    def request(self, number: int) -> None:
        """Prefill a prompt, then decode its tokens in a batch with others."""
        import torch

        x = torch.randn(PROMPT, HIDDEN, **self._place)
        for layer in self.layers:
            x = layer.prefill(x)
        for _ in range(TOKENS):
            self.decode_steps[BATCHES[number % len(BATCHES)]]()
        if self.on_gpu:
            torch.cuda.synchronize()

    def close(self) -> None:
        """Free the graphs: NCCL waits for them before it ends."""
        self.decode_steps.clear()


def serve(counts: Path) -> None:
    """Serve all requests, and write the counts."""
    import torch.distributed as dist

    server = Server()
    for number in range(REQUESTS):
        server.request(number)
    server.close()
    if dist.get_rank() == 0:
        found = {"eager": server.reduce.calls, "in graphs": server.in_graphs}
        counts.write_text(json.dumps(found) + "\n")
    dist.destroy_process_group()


def trace(out: Path, share: Path) -> None:
    """Record some requests on rank 0, and write the share of NCCL's kernels in the time of all."""
    import torch.distributed as dist
    from torch.profiler import profile

    server = Server()
    server.request(0)
    with profile() as recorded:
        for number in range(TRACED):
            server.request(number)
    server.close()
    if dist.get_rank() == 0:
        recorded.export_chrome_trace(str(out))
        spans = [
            (event.name, event.time_range.elapsed_us())
            for event in recorded.events()
            if event.device_type.name == "CUDA" and not event.name.startswith(ANNOTATIONS)
        ]
        nccl_us = sum(time_us for name, time_us in spans if name.startswith("ncclDevKernel"))
        all_us = sum(time_us for name, time_us in spans if not name.startswith(COPIES))
        found = {"nccl_us": nccl_us, "all_us": all_us, "share": nccl_us / all_us}
        share.write_text(json.dumps(found) + "\n")
    dist.destroy_process_group()


def compare(pattern: Path, counts: Path) -> None:
    """Print both counts; exit code 1 if they differ."""
    lines = map(json.loads, pattern.read_text().splitlines())
    rows = [line for line in lines if line["type"] == "row"]
    recorded = sum(row["calls"] for row in rows if row["function"] == "all_reduce")
    made = json.loads(counts.read_text())
    print(f"recorded {recorded}, made {sum(made.values())}: {made}")
    sys.exit(recorded != sum(made.values()))


if __name__ == "__main__":
    {"serve": serve, "trace": trace, "compare": compare}[sys.argv[1]](*map(Path, sys.argv[2:]))
