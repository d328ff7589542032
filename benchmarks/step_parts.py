"""What makes a training step longer than alone, on two ranks: `step_parts.py MODEL PRECISION BATCH
[METHODS] [FOLDER]`.

Started by torchrun or gpu_hosts.py. Methods, with commas between them, run in turn, three times:
`alone`; `still`, DDP with a hook that exchanges nothing; the methods of busbw train; and modifiers
after an @: nobroadcast (of DDP's buffers), plainstream (the worker's without priority), mb=50
(buckets). Prints for each rank the median step of 60, the 10 % and 90 % quantiles, and the time in
which the process launches a step: if it is close to the step's, the processor is the limit. With a
FOLDER, the GPUs' kernels of three steps are written there.
"""

import os
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import busbw_accel
from busbw_accel import comm_worker
from busbw_accel.train.bench import unchanged
from busbw_accel.train.loop import TrainingLoop, scaler_for, set_matmul_precision
from busbw_accel.train.methods import parse
from busbw_accel.train.models import BY_NAME
from busbw_accel.train.types import TrainSpec

ROUNDS, SETTLES, STEPS, TRACED = 3, 8, 20, 3
METHODS = "alone,still,none,dense,powersgd,powersgd@plainstream,powersgd@nobroadcast,topk"


def wrapped(
    net: torch.nn.Module, method: str, device: torch.device
) -> tuple[torch.nn.Module, busbw_accel.Attached | None]:
    """The model as the method trains it."""
    name, _, text = method.partition("@")
    changes = dict(word.partition("=")[::2] for word in text.split("+"))
    if name == "alone":
        return net, None
    ddp = DistributedDataParallel(
        net,
        device_ids=[device.index] if device.type == "cuda" else None,
        bucket_cap_mb=float(changes.get("mb", 25)),
        gradient_as_bucket_view=True,
        broadcast_buffers="nobroadcast" not in changes,
    )
    if name == "still":
        ddp.register_comm_hook(None, unchanged)
    settings = None if name in ("still", "none") else parse(name).settings
    comm_worker.URGENT = 0 if "plainstream" in changes else -1
    return ddp, busbw_accel.attach(ddp, settings) if settings else None


def launching_s(loop: TrainingLoop, steps: int = 6) -> float:
    """Seconds in which the process launches a step, with the GPU idle at the start."""
    loop.synchronize()
    begun = time.perf_counter()
    for _ in range(steps):
        loop.step()
    took = time.perf_counter() - begun
    loop.synchronize()
    return took / steps


def main(model: str, precision: str, batch: str, methods: str = METHODS, folder: str = "") -> None:
    """Prints a line for each rank and method."""
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
        dist.init_process_group("cuda:nccl,cpu:gloo", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    spec = TrainSpec(model=model, precision=precision, batch_size=int(batch))
    set_matmul_precision(precision)
    torch.manual_seed(0)
    net = BY_NAME[model].build(spec).to(device)
    steps: dict[str, list[float]] = {name: [] for name in methods.split(",")}
    launched: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(ROUNDS):
        for name in steps:
            net_there, attached = wrapped(net, name, device)
            loop = TrainingLoop(
                spec, BY_NAME[model], net_there, device, scaler_for(precision, device)
            )
            loop.time_steps(SETTLES)
            launched[name].append(launching_s(loop))
            dist.barrier()
            steps[name] += loop.time_steps(STEPS)
            if folder and number == 0:
                kind = (
                    torch.profiler.ProfilerActivity.CUDA
                    if device.type == "cuda"
                    else torch.profiler.ProfilerActivity.CPU
                )
                with torch.profiler.profile(activities=[kind]) as traced:
                    loop.time_steps(TRACED)
                traced.export_chrome_trace(
                    str(Path(folder) / f"{model}_{name}_{dist.get_rank()}.json.gz")
                )
            if attached:
                attached.close()
    every: list[tuple[dict[str, list[float]], dict[str, list[float]]] | None] = [
        None
    ] * dist.get_world_size()
    dist.all_gather_object(every, (steps, launched))
    if dist.get_rank() == 0:
        report(every)  # type: ignore[arg-type]
    dist.barrier()
    os._exit(0)


def report(every: list[tuple[dict[str, list[float]], dict[str, list[float]]]]) -> None:
    """All of it."""
    print(
        f"{'rank':4} {'':28} {'step ms':>8} {'10 %':>7} {'90 %':>7} {'beyond':>7} {'of first':>9}"
        f" {'launched in':>12}"
    )
    for rank, (steps, launched) in enumerate(every):
        first = statistics.median(next(iter(steps.values())))
        for name, samples in steps.items():
            low, *_, high = statistics.quantiles(samples, n=10)
            step = statistics.median(samples)
            figures = (
                f"{1e3 * step:8.2f} {1e3 * low:7.2f} {1e3 * high:7.2f} {1e3 * (step - first):7.2f}"
                f" {100 * first / step:7.1f} %"
            )
            print(
                f"{rank:4} {name:28} {figures} {1e3 * statistics.median(launched[name]):9.1f} ms",
                flush=True,
            )


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit((__doc__ or "").strip())
    main(*sys.argv[1:])
