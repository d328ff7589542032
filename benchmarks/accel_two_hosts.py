"""Exchanges of a gradient between two emulated hosts of two CPU ranks each, by method:
`accel_two_hosts.py [FILE.json] [MBIT/S]`.

Needs root: the hosts are network namespaces, joined by a veth pair limited to 1 Gbit/s
(tests/netlab). Every rank runs all methods in turn, for ROUNDS rounds; a time is the slowest
rank's. Bytes are those sent by a host's interface, and those counted by the worker.
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

import torch
import torch.distributed as dist

from busbw_accel import CommWorker, Settings
from busbw_accel.mesh import make

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "netlab"))

GRADIENT_BYTES = 64 << 20
RANKS, HOSTS, PER_HOST = 4, 2, 2
ROUNDS = 5
MBIT = 1000
PORT = 29_400
METHODS: dict[str, Settings | None] = {
    "torch all_reduce": None,
    "flat": Settings(),
    "2D": Settings(two_d=True),
    "2D bf16": Settings(two_d=True, wire="bf16"),
    "int8": Settings(method="int8"),
    "2D int8": Settings(method="int8", two_d=True),
    "PowerSGD rank 4": Settings(method="powersgd"),
    "top-k 1 %": Settings(method="topk", ratio=0.01),
    "2D top-k 1 % fp16": Settings(method="topk", ratio=0.01, two_d=True, values="fp16"),
}


def sent_bytes() -> int:
    """Bytes sent by this host's interface, the only one except loopback."""
    lines = Path("/proc/net/dev").read_text(encoding="utf-8").splitlines()[2:]
    fields = [line.replace(":", " ").split() for line in lines]
    return sum(int(words[9]) for words in fields if words[0] != "lo")


def exchange(settings: Settings | None) -> tuple[Callable[[torch.Tensor], None], CommWorker | None]:
    """One method with its worker."""
    if settings is None:
        return lambda flat: dist.all_reduce(flat.div_(RANKS)), None
    worker = CommWorker(settings, make(settings))
    numel = GRADIENT_BYTES // 4
    return (
        lambda flat: (worker.average(flat, ["weight"], [(4096, numel // 4096)]).wait(), None)[1],
        worker,
    )


def rank(number: int, interface: str) -> None:
    """What each rank runs; rank 0 prints all samples."""
    os.environ |= {"GLOO_SOCKET_IFNAME": interface}
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://10.77.0.1:{PORT}", rank=number, world_size=RANKS
    )
    made = {name: exchange(settings) for name, settings in METHODS.items()}
    source = torch.randn(GRADIENT_BYTES // 4, generator=torch.Generator().manual_seed(number)) ** 3
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in METHODS}
    for round_ in range(ROUNDS + 1):
        for name, (run, worker) in made.items():
            flat = source.clone()
            dist.barrier()
            before, counted = sent_bytes(), worker.traffic.across if worker else 0
            begun = time.perf_counter()
            run(flat)
            took = torch.tensor(time.perf_counter() - begun)
            dist.barrier()
            reports: list[object] = [None] * RANKS
            mine = {
                "sent": sent_bytes() - before,
                "counted": (worker.traffic.across - counted) if worker else 0,
            }
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
            dist.all_gather_object(reports, mine)
            if round_:  # the first is a warm-up
                samples[name].append({"seconds": float(took), "ranks": reports})  # type: ignore[dict-item]
    if number == 0:
        sys.stdout.write(json.dumps(samples) + "\n")
        sys.stdout.flush()
    dist.barrier()
    os._exit(0)


def report(samples: dict[str, list[dict[str, object]]]) -> str:
    """One line per method."""
    lines = [
        f"{'':20} {'ms':>7} {'least':>7} {'most':>7} {'of flat':>8} {'MB sent':>8} {'counted':>8}"
        f" {'of dense':>8}"
    ]
    median = {
        name: statistics.median(sample["seconds"] for sample in of_method)
        for name, of_method in samples.items()
    }
    dense = 0.0
    for name, of_method in samples.items():
        times = [1e3 * sample["seconds"] for sample in of_method]
        sent = 1e-6 * statistics.median(sample["ranks"][0]["sent"] for sample in of_method)
        counted = 1e-6 * statistics.median(
            sum(rank["counted"] for rank in sample["ranks"][:PER_HOST]) for sample in of_method
        )
        dense = dense or sent
        lines.append(
            f"{name:20} {1e3 * median[name]:7.0f} {min(times):7.0f} {max(times):7.0f}"
            f" {median['torch all_reduce'] / median[name]:7.2f}x {sent:8.2f} {counted:8.2f}"
            f" {dense / sent:7.1f}x"
        )
    return "\n".join(lines)


def main() -> int:
    """Make the hosts, run, print and write the results."""
    import netlab

    mbit = float(sys.argv[2]) if len(sys.argv) > 2 else MBIT
    with netlab.lab(hosts=HOSTS, rate_mbit=mbit) as lab:
        ranks = []
        for number in range(RANKS):
            host = lab.hosts[number // PER_HOST]
            argv = host.enter(sys.executable, __file__, "--rank", str(number), host.interface)
            ranks.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        samples = json.loads(ranks[0].communicate(timeout=600)[0])
        for process in ranks:
            process.wait(60)
    sys.stdout.write(report(samples) + "\n")
    if len(sys.argv) > 1:
        host = {
            "kernel": platform.release(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "torch": torch.__version__,
        }
        words = {"host": host, "mbit": mbit, "gradient_bytes": GRADIENT_BYTES, "samples": samples}
        Path(sys.argv[1]).write_text(json.dumps(words, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank(int(sys.argv[2]), sys.argv[3])
    sys.exit(main())
