"""How often the right rank is named in a training whose steps are recorded: a GPT-2 under PyTorch's
DistributedDataParallel, in which the last rank computes longer.

    late_training.py OUT                              every share, three times, two ranks
    late_training.py OUT --ranks 4 --percent 0 10 --every 10 --repeats 5

Records each run by `busbw capture --timed` in a folder of OUT. Prints a line for each, with the
rank that is named, the delay found, and what was added to its step; then the counts. Without a GPU
for each rank they share one, as ranks of different hosts. This works best with CUDA's MPS.
"""

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from busbw.core.lateness import Lateness  # noqa: E402 - found by the path above
from busbw.pattern.registry import load  # noqa: E402

WARM = 5  # steps whose duration the delay is a share of
PROBE_CYCLES = 50_000_000
LIMIT_S = 600


def rank_main(percent: float, every: int, steps: int) -> None:
    """One rank: some steps to see how long they take, then the steps with the delay."""
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    import torch

    gpus = torch.cuda.device_count()
    if gpus < int(os.environ["LOCAL_WORLD_SIZE"]):
        os.environ["NCCL_HOSTID"] = f"rank{rank}"  # NCCL refuses two ranks of a host on one GPU
    torch.cuda.set_device(local % gpus)
    import torch.distributed as dist
    from capture_events_app import training

    dist.init_process_group("nccl")
    step = training()
    step()
    step_ms = timed_ms(lambda: [step() for _ in range(WARM)]) / WARM
    cycles_per_ms = PROBE_CYCLES / timed_ms(lambda: torch.cuda._sleep(PROBE_CYCLES))
    delay_ms = percent / 100 * step_ms
    late = rank == dist.get_world_size() - 1 and delay_ms > 0
    for number in range(steps):
        if late and number % every == every - 1:
            torch.cuda._sleep(int(delay_ms * cycles_per_ms))
        step()
    torch.cuda.synchronize()
    if rank == 0:
        print(f"added {delay_ms:.3f} ms to steps of {step_ms:.3f} ms", flush=True)
    dist.destroy_process_group()


def timed_ms(run: Callable[[], object]) -> float:
    """How long the GPU takes for what `run` enqueues."""
    import torch

    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    run()
    last.record()
    last.synchronize()
    return first.elapsed_time(last)


def record(folder: Path, arguments: argparse.Namespace, percent: float) -> str:
    """Record one training; returns what its rank 0 printed."""
    rank = [__file__, "rank", str(percent), str(arguments.every), str(arguments.steps)]
    run = ["torchrun", "--standalone", "--nproc-per-node", str(arguments.ranks), *rank]
    capture = ["busbw", "capture", "-o", str(folder), "--timed", "--", *run]
    done = subprocess.run(capture, check=True, capture_output=True, text=True, timeout=LIMIT_S)
    return next(line for line in done.stdout.splitlines() if line.startswith("added "))


def outcome(found: Lateness | None, late_rank: int | None) -> str:
    """Whether the late rank was named: right, wrong, or none."""
    named = [late.rank for late in found.late] if found else []
    if late_rank is None:
        return "wrong" if named else "right"
    return "none" if not named else "right" if named == [late_rank] else "wrong"


def main() -> None:
    """Record, and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--percent", type=float, nargs="+", default=[0, 3, 5, 10, 30])
    parser.add_argument("--every", type=int, default=1, help="delay each so many steps")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    counts: Counter[tuple[float, str]] = Counter()
    for number in range(arguments.repeats):
        for percent in arguments.percent:
            folder = arguments.out / f"late-{percent:g}-{number + 1}"
            added = record(folder, arguments, percent)
            found = load([str(folder)]).header.lateness
            told = outcome(found, arguments.ranks - 1 if percent else None)
            counts[percent, told] += 1
            delays = [(late.rank, round(late.us / 1e3, 3)) for late in found.late] if found else []
            print(f"{folder.name}: {told}, {added}, found (rank, ms): {delays}", flush=True)
    for (percent, told), runs in sorted(counts.items()):
        print(f"{percent:g} %: {told} in {runs} of {arguments.repeats}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank_main(float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
