"""The backends of `busbw backends` timed by a program of PyTorch alone, and both compared.

    torchrun --nproc-per-node 2 backends_beside.py time OUT.json [BACKEND]...   times by size
    backends_beside.py compare BUSBW.json OUT.json...                           and differences

Each time is of a CUDA graph of CALLS calls, replayed REPLAYS times between two CUDA events: the
median of ROUNDS, the largest over ranks, per call. Backends take turns in each round, on a GPU
that has worked for WARM_S. Nothing of busbw is imported. `vllm` is FlashInfer's port of it; without
FlashInfer both are left out.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

CALLS, REPLAYS, ROUNDS, WARM_S = 16, 20, 15, 0.5
SIZES = [1 << power for power in range(10, 27, 2)]
ROOM = 256 << 20  # bytes of a buffer, in which the calls of a graph have places of their own
ALLOWED, ALLOWED_US = 0.03, 0.3
VLLM_MOST, VLLM_CTAS, RANK_DATA = 8 << 20, 36, 8 << 20
FLASHINFER_MOST, HIDDEN, EARLY_TOKENS = 64 << 20, 8192, 16


class Backend(NamedTuple):
    """What makes the call of a size at a place, what follows a capture, the largest size, and
    what the calls need besides.
    """

    call: Callable[[int, int], Callable[[], object]]
    captured: Callable[[], object] = lambda: None
    most: int = ROOM
    kept: object = None


def backends(group: Any, device: Any) -> dict[str, Backend]:
    """All that are installed."""
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric_memory

    kind, ops = torch.bfloat16, torch.ops.symm_mem
    plain = torch.zeros(ROOM // 2, dtype=kind, device=device)
    dist.all_reduce(plain[:8])
    nccl = group._get_backend(device)
    pool = torch.cuda.MemPool(nccl.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        window = torch.zeros(ROOM // 2, dtype=kind, device=device)
    nccl.register_mem_pool(pool, symm=True)
    mapped = symmetric_memory.empty(ROOM // 2, dtype=kind, device=device)
    symmetric_memory.rendezvous(mapped, group)

    name = group.group_name
    found = {
        "nccl": lambda size, place: lambda: dist.all_reduce(part(plain, size, place)),
        "nccl-symmetric": lambda size, place: lambda: dist.all_reduce(part(window, size, place)),
        "one-shot": lambda size, place: (
            lambda: ops.one_shot_all_reduce_out(
                part(mapped, size, place), "sum", name, part(plain, size, place)
            )
        ),
        "two-shot": lambda size, place: (
            lambda: ops.two_shot_all_reduce_(part(mapped, size, place), "sum", name)
        ),
    }
    all_found = {name: Backend(call) for name, call in found.items()}
    try:
        from flashinfer import comm
    except ImportError as error:
        print(f"vllm and flashinfer are left out: {error}", file=sys.stderr)
        return all_found
    all_found["vllm"] = vllm(comm, group, plain)
    all_found["flashinfer"] = flashinfer(comm, group, plain)
    return all_found


def part(tensor: Any, size: int, place: int) -> Any:
    """The elements of a call."""
    count = size // 2
    return tensor[place * count : (place + 1) * count]


class Memory:
    """Memory of a GPU as PyTorch takes it."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }


def vllm(comm: Any, group: Any, out: Any) -> Backend:
    """FlashInfer's port of vLLM's kernels, on registered buffers."""
    import torch
    import torch.distributed as dist

    rank, device = dist.get_rank(), out.device
    signals_size = comm.vllm_meta_size() + VLLM_MOST
    signals = comm.create_shared_buffer(signals_size, group)
    torch.as_tensor(Memory(signals[rank], signals_size), device=device).zero_()
    shared = comm.create_shared_buffer(ROOM, group)
    mapped = torch.as_tensor(Memory(shared[rank], ROOM), device=device).view(out.dtype)
    rank_data = torch.empty(RANK_DATA, dtype=torch.uint8, device=device)
    torch.cuda.synchronize()
    dist.barrier()
    handle = comm.vllm_init_custom_ar(signals, rank_data, rank, True)

    def call(size: int, place: int) -> Callable[[], object]:
        comm.vllm_register_buffer(handle, [address + size * place for address in shared])
        source, result = part(mapped, size, place), part(out, size, place)
        return lambda: comm.vllm_all_reduce(handle, source, result, 0, 0, VLLM_CTAS)

    def captured() -> None:
        all_metas: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(all_metas, comm.vllm_get_graph_buffer_ipc_meta(handle))
        handles, offsets = zip(*all_metas, strict=True)
        comm.vllm_register_graph_buffers(handle, list(handles), list(offsets))

    return Backend(call, captured, VLLM_MOST - 16, rank_data)


def flashinfer(comm: Any, group: Any, out: Any) -> Backend:
    """FlashInfer's kernels of TensorRT-LLM, without a norm."""
    import torch
    import torch.distributed as dist

    plain = torch.zeros_like(out)
    workspace = comm.create_allreduce_fusion_workspace(
        backend="trtllm",
        world_size=dist.get_world_size(),
        rank=dist.get_rank(),
        max_token_num=FLASHINFER_MOST // 2 // HIDDEN,
        hidden_dim=HIDDEN,
        dtype=out.dtype,
        group=group,
    )

    def call(size: int, place: int) -> Callable[[], object]:
        shape = -1, min(size // 2, HIDDEN)
        source, result = part(plain, size, place).view(shape), part(out, size, place).view(shape)
        return lambda: comm.allreduce_fusion(
            input=source,
            workspace=workspace,
            pattern=comm.AllReduceFusionPattern.kAllReduce,
            launch_with_pdl=True,
            trigger_completion_at_end=len(source) > EARLY_TOKENS,
            output=result,
        )

    return Backend(call, most=FLASHINFER_MOST)


def captured(backend: Backend, size: int, places: int) -> Any:
    """A graph of calls at so many places."""
    import torch

    calls = [backend.call(size, place) for place in range(places)]
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    backend.captured()
    return graph


def replayed_us(graph: Any) -> float:
    """The time of a replay."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    begin.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    end.synchronize()
    return 1e3 * begin.elapsed_time(end) / REPLAYS


def warm_up(device: Any) -> None:
    """Work until the GPU's clocks are those of a busy one."""
    import torch

    a, until = torch.randn(4096, 4096, device=device).bfloat16(), time.monotonic() + WARM_S
    while time.monotonic() < until:
        torch.mm(a, a)
        torch.cuda.synchronize()


def time_all(out: Path, only: list[str]) -> None:
    """Write the times of these backends, of all if none is named."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("nccl", device_id=torch.device("cuda", int_of("LOCAL_RANK")))
    device = torch.device("cuda", int_of("LOCAL_RANK"))
    torch.cuda.set_device(device)
    all_backends, found = backends(dist.group.WORLD, device), dict[str, dict[int, float]]()
    warm_up(device)
    for size in SIZES:
        places = max(min(CALLS, ROOM // size), 1)
        graphs = {
            name: captured(backend, size, places)
            for name, backend in all_backends.items()
            if size <= backend.most and (not only or name in only)
        }
        rounds = [[replayed_us(graph) for graph in graphs.values()] for _ in range(ROUNDS)]
        medians = [statistics.median(column) / places for column in zip(*rounds, strict=True)]
        longest = torch.tensor(medians, device=device)
        dist.all_reduce(longest, dist.ReduceOp.MAX)
        for name, time_us in zip(graphs, longest.tolist(), strict=True):
            found.setdefault(name, {})[size] = time_us
        graphs.clear()
    if dist.get_rank() == 0:
        out.write_text(json.dumps(found, indent=1) + "\n")
    dist.destroy_process_group()


def int_of(name: str) -> int:
    """A number in the environment."""
    import os

    return int(os.environ[name])


def compare(busbw: Path, others: list[Path]) -> None:
    """Print both, and by how much busbw's are longer than the mean of the others."""
    rows = json.loads(busbw.read_text())["rows"]
    tables = [json.loads(other.read_text()) for other in others]
    print("backend             size     busbw us  beside us  spread   longer by")
    missed = 0
    for row in rows:
        for timed in row["times"]:
            size, name = row["size_bytes"], timed["backend"]
            beside = [table[name].get(str(size)) for table in tables if name in table]
            if timed["mode"] != "graph" or not timed.get("cell") or not beside or None in beside:
                continue
            own_us, other_us = 1e6 * timed["cell"]["time_s"], statistics.fmean(beside)
            spread = max(beside) / min(beside) - 1
            longer = own_us / other_us - 1
            is_near = abs(longer) <= ALLOWED or abs(own_us - other_us) <= ALLOWED_US
            missed += not is_near
            mark = "" if is_near else "  *"
            print(
                f"{name:16}{size:10}{own_us:11.2f}{other_us:11.2f}{spread:8.1%}{longer:10.1%}{mark}"
            )
    print(f"{missed} differ by more than {ALLOWED:.0%} and {ALLOWED_US} us")


if __name__ == "__main__":
    if sys.argv[1] == "time":
        time_all(Path(sys.argv[2]), sys.argv[3:])
    else:
        compare(Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
