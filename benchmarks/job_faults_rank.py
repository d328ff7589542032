"""One rank of `job_faults.py`: runs a training's script unchanged, with faults that come and go.

    job_faults_rank.py SCRIPT [ARGUMENT...]

`JOB_FAULTS` names a folder with a file of numbers for each rank, which the benchmark changes while
the training runs. On machines without GPUs, scripts that were written for some run on CPUs.
"""

import contextlib
import functools
import gc
import math
import mmap
import os
import random
import runpy
import sys
import time
from enum import IntEnum, auto
from pathlib import Path
from typing import Any

CONTROL = "JOB_FAULTS"
SIZE = 4096  # bytes of the file
PAUSE_LIMIT_S = 600.0
CALIBRATION, TRIES = 200, 20  # products of matrices


class Word(IntEnum):
    """What the numbers of a rank's file are. All are 0 at first, but the first few."""

    COMPUTE_MS = 0  # added to each backward, for the work that a GPU would do; its spread is 2 %
    SLOW = auto()  # share by which the rank's steps are longer, in its backward
    EVERY = auto()  # only each so many steps; 0: each
    LOADER_MS = auto()  # each batch comes later
    SKIP = auto()  # 1: once the rank does not call the all_reduce of its metrics
    ODD_SIZE = auto()  # 1: once it calls that with another size
    PRODUCTS = auto()  # of matrices in a millisecond, by which it computes; 0: it sleeps
    METRICS_EVERY = auto()  # steps between these calls; 0: none
    GARBAGE = auto()  # objects that this rank's collector goes through, at its own pace
    EVALUATE_EVERY = auto()  # steps between pauses of all ranks
    SAVE_EVERY = auto()  # steps between checkpoints of rank 0
    PAUSE_S = auto()  # how long these take
    STEPS = auto()  # written by the rank: how many it has made
    STEP_MS = auto()  # written by the rank: the last


def control(folder: Path, rank: int) -> Any:
    """The numbers of a rank: a view of its file, which is made."""
    path = folder / f"control_{rank}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(descriptor, SIZE)
    return memoryview(mmap.mmap(descriptor, SIZE)).cast("d")


class Steps:
    """Called after each step of the first optimizer."""

    def __init__(self, words: Any, rank: int) -> None:
        self._words, self._rank = words, rank
        self._random = random.Random(rank)
        self._optimizer: Any = None
        self._count = 0
        self._began_s = time.monotonic()
        self._garbage: list[Any] = []

    def after_step(self, optimizer: Any, *_: object) -> None:
        """What a fault adds to a step."""
        if self._optimizer is None:
            self._optimizer = optimizer
        if optimizer is not self._optimizer:
            return
        self._count += 1
        words = self._words
        self._collect_garbage(int(words[Word.GARBAGE]))
        if self._is_due(Word.EVALUATE_EVERY) or (self._rank == 0 and self._is_due(Word.SAVE_EVERY)):
            time.sleep(words[Word.PAUSE_S])
        if self._is_due(Word.METRICS_EVERY):
            self._reduce_metrics()
        now_s = time.monotonic()
        words[Word.STEPS], words[Word.STEP_MS] = self._count, 1e3 * (now_s - self._began_s)
        self._began_s = now_s

    def _is_due(self, word: Word) -> bool:
        every = int(self._words[word])
        return bool(every) and self._count % every == 0

    def compute(self) -> None:
        """What a fault adds to a backward, before it begins."""
        words = self._words
        usual_ms = words[Word.COMPUTE_MS]
        slow = words[Word.SLOW] if self._count % max(1, int(words[Word.EVERY])) == 0 else 0.0
        more_ms = words[Word.STEP_MS] * slow
        compute(usual_ms * self._random.gauss(1.0, 0.02) + more_ms, words[Word.PRODUCTS])

    def _collect_garbage(self, objects: int) -> None:
        if len(self._garbage) != objects:
            self._garbage = [[] for _ in range(objects)]
        if objects and self._random.random() < 0.02:
            gc.collect()

    def _reduce_metrics(self) -> None:
        """All ranks add up a number, as trainings do with their loss."""
        import torch
        import torch.distributed as dist

        words = self._words
        if words[Word.SKIP]:
            words[Word.SKIP] = 0
            return
        elements = 3 if words[Word.ODD_SIZE] else 2
        words[Word.ODD_SIZE] = 0
        device = "cuda" if torch.cuda.is_available() else "cpu"
        dist.all_reduce(torch.ones(elements, device=device))


def compute(milliseconds: float, products: float) -> None:
    """Multiply matrices, so many in a millisecond; without any, sleep in place of a GPU."""
    if milliseconds <= 0:
        return
    if products:
        _multiply(round(milliseconds * products))
    else:
        time.sleep(milliseconds / 1e3)


@functools.cache
def _matrix() -> Any:
    import torch

    if torch.cuda.is_available():
        return torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    return torch.randn(128, 128)


def _multiply(count: int) -> None:
    import torch

    with torch.no_grad():
        for _ in range(count):
            torch.mm(_matrix(), _matrix())


def products_per_ms() -> float:
    """On a GPU, or on a CPU: the most of some tries. All ranks get the same number."""
    import torch

    torch.set_num_threads(1)
    best_s = math.inf
    for _ in range(TRIES):
        began_s = time.perf_counter()
        _multiply(CALIBRATION)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        best_s = min(best_s, time.perf_counter() - began_s)
    return CALIBRATION / (1e3 * best_s)


def lengthen_backward(steps: Steps) -> None:
    """Compute longer before each backward."""
    import torch

    original = torch.Tensor.backward

    def backward(self: Any, *words: Any, **options: Any) -> None:
        steps.compute()
        original(self, *words, **options)

    torch.Tensor.backward = backward


def watch_loader(words: Any) -> None:
    """Delay what DataLoaders give."""
    from torch.utils.data import dataloader

    for iterator in (
        dataloader._SingleProcessDataLoaderIter,
        dataloader._MultiProcessingDataLoaderIter,
    ):
        iterator._next_data = _late_batches(iterator._next_data, words)


def _late_batches(original: Any, words: Any) -> Any:
    def late(self: Any) -> Any:
        deadline = time.monotonic() + PAUSE_LIMIT_S
        while words[Word.LOADER_MS] < 0 and time.monotonic() < deadline:  # paused
            time.sleep(0.01)
        time.sleep(max(0.0, words[Word.LOADER_MS]) / 1e3)
        return original(self)

    return late


def run_on_cpus() -> None:
    """Let scripts that move their tensors to GPUs run without any."""
    import torch
    from torch.nn.parallel import distributed
    from torch.utils.data import dataloader

    torch.set_num_threads(1)
    torch.accelerator.is_available = lambda: True
    torch.accelerator.device_count = lambda: int(os.environ["WORLD_SIZE"])
    torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cpu")
    torch.accelerator.set_device_index = torch.accelerator.device_index = lambda *_: None
    torch.cuda.set_device = lambda *_: None
    torch.Tensor.pin_memory = lambda self, *_: self
    torch.optim.Optimizer._accelerator_graph_capture_health_check = lambda _: None
    for owner in (torch.Tensor, torch.nn.Module):
        owner.to = _without_gpus(owner.to)
    init = distributed.DistributedDataParallel.__init__
    distributed.DistributedDataParallel.__init__ = _without(init, "device_ids")
    dataloader.DataLoader.__init__ = _without(dataloader.DataLoader.__init__, "pin_memory")
    torch.distributed.init_process_group = _without(
        torch.distributed.init_process_group, "device_id"
    )


def _without(original: Any, option: str) -> Any:
    @functools.wraps(original)
    def call(*words: Any, **options: Any) -> Any:
        options.pop(option, None)
        return original(*words, **options)

    return call


def _without_gpus(to: Any) -> Any:
    def call(self: Any, *words: Any, **options: Any) -> Any:
        import torch

        options.pop("non_blocking", None)
        kept = [word for word in words if isinstance(word, torch.dtype | torch.Tensor)]
        if isinstance(options.get("device"), int | str | torch.device):
            options.pop("device")
        return to(self, *kept, **options) if kept or options else self

    return call


def main() -> None:
    """Run the script as the main program; without one, print how many products a ms takes."""
    if len(sys.argv) == 1:
        print(products_per_ms())
        return
    rank = int(os.environ["RANK"])
    words = control(Path(os.environ[CONTROL]), rank)
    import torch
    from torch.optim import optimizer

    if not torch.cuda.is_available():
        run_on_cpus()
    elif torch.cuda.device_count() < int(os.environ["LOCAL_WORLD_SIZE"]):
        os.environ["NCCL_HOSTID"] = f"rank{rank}"  # NCCL refuses two ranks of a host on one GPU
        os.environ["LOCAL_RANK"] = "0"
        torch.accelerator.device_count = lambda: int(os.environ["WORLD_SIZE"])
    steps = Steps(words, rank)
    optimizer.register_optimizer_step_post_hook(steps.after_step)
    lengthen_backward(steps)
    watch_loader(words)
    if "JOB_FAULTS_RIVALS" in os.environ:
        import job_faults_rivals_rank

        job_faults_rivals_rank.attach(Path(os.environ[CONTROL]), rank, steps)
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    with contextlib.suppress(KeyboardInterrupt):
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
