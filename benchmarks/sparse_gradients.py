"""Time to average the gradient of a table of 1,000,000 x 64 (fp32) of which each rank touches a
part of the rows: sparse and dense.

    sparse_gradients.py FILE.json MBIT/S                            two emulated hosts of this
        machine, with a CPU rank each (needs root)
    gpu_hosts.py 25 each sparse_gradients.py FILE.json 25000        two emulated hosts with a GPU
        each

The methods take turns for ROUNDS rounds. A time is the slower rank's, from a barrier on. `bound` is
the larger of two: the bytes of the rows and ids that a rank has to send, over the rate of the link,
and the time of an all-gather of 8 bytes. `all-gather` is one of the same size, `in pieces` the same
as accel does it on CPUs. SPARSE_TABLE=1000x8 makes the table smaller, to try the program.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from busbw_accel import CommWorker, Settings
from busbw_accel.communicator import Communicator
from busbw_accel.mesh import make

ROWS, WIDTH = (int(number) for number in os.environ.get("SPARSE_TABLE", "1000000x64").split("x"))
SHARES = (0.01, 0.05, 0.2)
ROUNDS, WARM_UP = 15, 3
PORT = 29_400
CPU = not torch.cuda.is_available()
DEVICE = torch.device("cpu" if CPU else "cuda")


def gradient(share: float, number: int) -> torch.Tensor:
    """As an embedding's backward makes it: ids in any order, some repeated.

    About `share` of the rows are touched.
    """
    made = torch.Generator().manual_seed(number)
    drawn = int(-torch.log1p(torch.tensor(-share)) * ROWS)
    ids = torch.randint(ROWS, (1, drawn), generator=made)
    values = torch.randn(drawn, WIDTH, generator=made)
    return torch.sparse_coo_tensor(
        ids.to(DEVICE), values.to(DEVICE), (ROWS, WIDTH), check_invariants=False
    )


def seconds(run: Callable[[], object]) -> float:
    """The slower rank's time."""
    if not CPU:
        torch.cuda.synchronize()
    dist.barrier()
    begun = time.perf_counter()
    run()
    if not CPU:
        torch.cuda.synchronize()
    took = torch.tensor(time.perf_counter() - begun, device=DEVICE)
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return float(took)


def gathering(nbytes: int, comm: Communicator | None = None) -> Callable[[], object]:
    """An all-gather of so many bytes of each rank. `comm`: as accel does it, on CPUs in pieces."""
    own = torch.zeros(nbytes, dtype=torch.uint8, device=DEVICE)
    every = torch.empty(dist.get_world_size(), nbytes, dtype=torch.uint8, device=DEVICE)
    if comm is not None:
        return lambda: comm.begin_all_gather_large(every, own).wait()
    return lambda: dist.all_gather_into_tensor(every.view(-1), own)


def measured(worker: CommWorker, share: float, link: float) -> dict[str, Any]:
    """Samples of each method, in seconds. `link`: bytes per second."""
    own = gradient(share, dist.get_rank())
    touched = torch.tensor([len(own._indices()[0].unique())], device=DEVICE)
    dist.all_reduce(touched, op=dist.ReduceOp.MAX)
    nbytes = int(touched) * (4 * WIDTH + 4)
    dense = own.to_dense().view(-1)
    methods: dict[str, Callable[[], object]] = {
        "sparse": lambda: worker.average_sparse(own).wait(),
        "dense": lambda: worker.average(dense, ["table"], [(ROWS, WIDTH)]).wait(),
        "all-gather": gathering(nbytes),
        "8 bytes": gathering(8),
    }
    if CPU:
        methods["in pieces"] = gathering(nbytes, worker.mesh.world)
        methods["torch sparse"] = lambda: dist.all_reduce(own.clone())  # NCCL has none
    before = worker.traffic.across
    worker.average_sparse(own).wait()
    sent = worker.traffic.across - before
    error = verified(worker, own)
    samples: dict[str, list[float]] = {name: [] for name in methods}
    for round_ in range(ROUNDS + WARM_UP):
        for name, run in methods.items():
            took = seconds(run)
            if round_ >= WARM_UP:
                samples[name].append(took)
    bound = max(nbytes / link, statistics.median(samples["8 bytes"]))
    return {
        "touched": int(touched),
        "bytes": nbytes,
        "counted": sent,
        "bound": bound,
        "error": error,
        "samples": samples,
    }


def verified(worker: CommWorker, own: torch.Tensor) -> float:
    """The largest difference between the sparse and the dense average."""
    whole = own.to_dense()
    dist.all_reduce(whole)
    return float(
        (worker.average_sparse(own).wait().to_dense() - whole / dist.get_world_size()).abs().max()
    )


def rank(file: str, mbit: float) -> None:
    """One rank: measures; the first prints and writes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo" if CPU else "nccl")
    worker = CommWorker(Settings(), make(Settings()))
    found = {str(share): measured(worker, share, mbit / 8 * 1e6) for share in SHARES}
    if dist.get_rank() == 0:
        device = platform.machine() if CPU else torch.cuda.get_device_name()
        machine = {
            "kernel": platform.release(),
            "cores": os.cpu_count(),
            "device": device,
            "torch": torch.__version__,
        }
        record = {"machine": machine, "mbit": mbit, "table": [ROWS, WIDTH], "shares": found}
        Path(file).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(report(found) + "\n")
        sys.stdout.flush()
    dist.barrier()
    os._exit(0)


def report(found: dict[str, dict[str, Any]]) -> str:
    """One line per share and method."""
    lines = [
        f"{'rows':>6} {'method':14} {'ms':>8} {'least':>8} {'most':>8} {'of bound':>8}"
        f" {'of dense':>8}"
    ]
    for share, one in found.items():
        dense = statistics.median(one["samples"]["dense"])
        for name, some in one["samples"].items():
            median = statistics.median(some)
            figures = " ".join(f"{1e3 * number:8.2f}" for number in (median, min(some), max(some)))
            lines.append(
                f"{float(share):6.0%} {name:14} {figures} {median / one['bound']:7.2f}x"
                f" {dense / median:7.2f}x"
            )
        sent = (
            f"{one['bytes'] / 1e6:.2f} MB, counted {one['counted'] / 1e6:.2f}; largest difference"
            f" from the dense average {one['error']:.1e}"
        )
        lines.append(f"{float(share):6.0%} {'bound':14} {1e3 * one['bound']:8.2f} ({sent})")
    return "\n".join(lines)


def main() -> int:
    """As a rank of a job: measure. Otherwise make two hosts and start a rank on each."""
    file, mbit = sys.argv[1], float(sys.argv[2])
    if "RANK" in os.environ:
        rank(file, mbit)
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "netlab"))
    import netlab

    with netlab.lab(2, rate_mbit=mbit) as lab:
        ranks = []
        for number, host in enumerate(lab.hosts):
            own = {
                "RANK": str(number),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "10.77.0.1",
                "MASTER_PORT": str(PORT),
            }
            own |= {"GLOO_SOCKET_IFNAME": host.interface, "NCCL_HOSTID": host.name}
            ranks.append(
                subprocess.Popen(
                    host.enter(sys.executable, __file__, file, str(mbit)), env={**os.environ, **own}
                )
            )
        return max(process.wait(600) for process in ranks)


if __name__ == "__main__":
    sys.exit(main())
