"""Makes a Flight Recorder dump and a profiler trace of a small training with DDP, on CPUs with Gloo
or on GPUs with NCCL:

TORCH_FR_BUFFER_SIZE=2000 torchrun --nproc-per-node 2 job.py
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

RANK = int(os.environ["RANK"])
GPU = torch.cuda.is_available()
DEVICE = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if GPU else "cpu")


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor on this rank's device."""
    return torch.ones(shape, dtype=dtype, device=DEVICE)


def collectives(ranks: int, pair: dist.ProcessGroup) -> None:
    """Every collective once."""
    half = ones(1000, dtype=torch.bfloat16)
    dist.broadcast(half, 1)
    dist.all_gather([torch.empty_like(half) for _ in range(ranks)], half, group=pair)
    dist.all_gather_into_tensor(ones(1000 * ranks, dtype=torch.bfloat16), half)
    dist.reduce_scatter_tensor(ones(32), ones(32 * ranks))
    dist.all_to_all_single(ones(8, dtype=torch.int64), ones(8, dtype=torch.int64))
    sent, received = ([1, 3], [1, 2]) if RANK == 0 else ([2, 4], [3, 4])
    dist.all_to_all_single(ones(sum(received)), ones(sum(sent)), received, sent)
    dist.reduce(ones(5, dtype=torch.float64), 0)
    if RANK == 0:
        dist.send(ones(77, dtype=torch.uint8), 1)
    else:
        dist.recv(ones(77, dtype=torch.uint8), 0)
    dist.gather(ones(3), [ones(3) for _ in range(ranks)] if RANK == 0 else None, 0)
    dist.all_reduce(ones(4), op=dist.ReduceOp.MAX)
    dist.barrier()


def main() -> None:
    """Train three steps, call every collective, and write what was recorded."""
    if GPU:
        torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl" if GPU else "gloo")
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
    ).to(DEVICE)
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.05)
    optimizer = torch.optim.SGD(wrapped.parameters(), 0.1)
    pair = dist.new_group([0, 1])
    with profile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if GPU else [])]
    ) as profiler:
        for _ in range(3):
            optimizer.zero_grad()
            wrapped(ones(8, 64)).sum().backward()
            optimizer.step()
        collectives(dist.get_world_size(), pair)
    profiler.export_chrome_trace(f"kineto_rank_{RANK}.json")
    binary, text = (
        (c10d._dump_nccl_trace, c10d._dump_nccl_trace_json)
        if GPU
        else (c10d._dump_fr_trace, c10d._dump_fr_trace_json)
    )
    Path(f"flight_recorder_rank_{RANK}.pickle").write_bytes(binary(True, False, False))
    Path(f"flight_recorder_rank_{RANK}.json").write_bytes(text(True, False))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
