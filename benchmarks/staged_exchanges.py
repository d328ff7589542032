"""Exchanges of a training step, over host staging and over the backend, each with and without
receive packet steering: `staged_exchanges.py [SCALE]`.

Started by gpu_hosts.py, which limits the rate:

    gpu_hosts.py 12.5 each staged_exchanges.py
    gpu_hosts.py --cpus 6 each staged_exchanges.py 0.3

A step has the exchanges of GPT-2 in int8, 12 of 7.1 MB and one of 40 MB, or SCALE times as many
bytes, and a pause before it. The ways take turns, for ROUNDS rounds of STEPS steps. The segments
sent again are those of this host, by /proc/net/snmp.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from busbw_accel.staging import connect

ROUNDS, STEPS, PAUSE_S = 4, 15, 0.02
SIZES = [7_100_000] * 12 + [40_000_000]
STREAMS = 2  # of a GPU, which take turns as those of the worker do


def segments_sent_again() -> int:
    """By this host since it was made."""
    names, values = (
        line.split()
        for line in Path("/proc/net/snmp").read_text(encoding="utf-8").splitlines()
        if line.startswith("Tcp:")
    )
    return int(values[names.index("RetransSegs")])


def steering_files() -> list[Path]:
    """Which cores receive: a file for each queue of this host's interfaces."""
    return [
        file
        for interface in Path("/sys/class/net").iterdir()
        if interface.name != "lo"
        for file in interface.glob("queues/rx-*/rps_cpus")
    ]


def milliseconds(step: Callable[[], None], device: torch.device) -> float:
    """The time of a step, from when all ranks have paused."""
    dist.barrier()
    time.sleep(PAUSE_S)
    start = time.perf_counter()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)


def table(nbytes: int, measured: dict[str, list[float]], again: dict[str, int]) -> str:
    """Of the times of each way, and the segments that a step sent again."""
    head = "    least     10 %   median     90 %  most, ms   sent again"
    lines = [f"{nbytes / 1e6:.0f} MB".ljust(26) + head]
    for way, unsorted in measured.items():
        times, count = sorted(unsorted), len(unsorted)
        shown = [times[number] for number in (0, count // 10, count // 2, -(count // 10), -1)]
        columns = " ".join(f"{value:8.2f}" for value in shown)
        lines.append(f"{way:27s} {columns} {again[way] / count:9.1f}")
    return "\n".join(lines)


def main() -> None:
    """Measure all ways, and print a line for each."""
    scale = float(sys.argv[1]) if sys.argv[1:] else 1.0
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", 0) if gpu else torch.device("cpu")
    dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo")
    sizes = [round(scale * size) for size in SIZES]
    sent = [torch.ones(size, dtype=torch.uint8, device=device) for size in sizes]
    gathered = [torch.empty(2, size, dtype=torch.uint8, device=device) for size in sizes]
    streams = [torch.cuda.Stream(device) if gpu else None for _ in range(STREAMS)]
    staging = connect([0, 1], 60.0)
    assert staging is not None

    def staged() -> None:
        for number, (part, rows) in enumerate(zip(sent, gathered, strict=True)):
            with torch.cuda.stream(streams[number % STREAMS]):
                staging.all_gather(rows, part)

    def by_backend() -> None:
        for part, rows in zip(sent, gathered, strict=True):
            dist.all_gather_into_tensor(rows.view(-1), part)

    files = steering_files()
    masks = [file.read_text(encoding="utf-8") for file in files]
    measured: dict[str, list[float]] = {}
    again: dict[str, int] = {}
    for _ in range(ROUNDS):
        for steered in (True, False):
            for file, mask in zip(files, masks, strict=True):
                file.write_text(mask if steered else "0\n", encoding="utf-8")
            for name, step in (("host staging", staged), ("backend", by_backend)):
                way = f"{name}, {'steered' if steered else 'not steered'}"
                milliseconds(step, device)
                before = segments_sent_again()
                measured.setdefault(way, []).extend(
                    milliseconds(step, device) for _ in range(STEPS)
                )
                again[way] = again.get(way, 0) + segments_sent_again() - before
    if dist.get_rank() == 0:
        print(table(sum(sizes), measured, again))
    staging.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
