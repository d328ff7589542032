"""What NVLink carries in dispatch and combine, beside the wire bytes that `busbw moe` states.

    torchrun --nproc-per-node 2 moe_wire.py OUT.json BACKENDS

BACKENDS is a list like that of `--backends`. The GPUs are those of one host. Each operation runs
between two readings of NVML's counters, until a rank should have sent LEAST bytes. Counters of all
GPUs are compared, in both directions: the exit code is 1 if any differs by more than ALLOWED.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from busbw.core.dtypes import dtype
from busbw.host.gpu_traffic import GpuTraffic
from busbw.moe.batch import sizes_of
from busbw.moe.draws import draw
from busbw.moe.exchange import Buffers, buffer_rows
from busbw.moe.plan import rank_plan
from busbw.moe.registry import OpenedBackend, backend, parse_backends
from busbw.moe.routing import parse_routing
from busbw.moe.types import MoeSpec
from busbw.moe.volumes import DIRECTIONS, volumes

TOKENS, EXPERTS = (128, 4096), (64, 256)
LEAST, ALLOWED = 2e9, 0.02
READ = ("nvlink_tx", "nvlink_rx")


def bus_of(device: int) -> str:
    """As host/gpu_traffic.py names a GPU."""
    gpu = torch.cuda.get_device_properties(device)
    return f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}"


def counters(buses: list[str], traffic: GpuTraffic) -> list[dict[str, int]]:
    """The bytes that each GPU's links have carried; collective."""
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    read = traffic.traffic()
    dist.barrier()
    return [{name: 1024 * read[bus][1][name] for name in READ} for bus in buses]


def compared(
    repeats: int, matrix: list[list[int]], before: list[Any], after: list[Any]
) -> list[float]:
    """The difference of each counter from what the ranks should send and receive, as a share."""
    found = []
    for rank, row in enumerate(matrix):
        column = [other[rank] for other in matrix]
        for name, moved in zip(READ, (row, column), strict=True):
            stated = repeats * (sum(moved) - moved[rank])
            found.append((after[rank][name] - before[rank][name]) / stated - 1)
    return found


def measured(
    name: str, opened: OpenedBackend, spec: MoeSpec, buses: list[str], traffic: GpuTraffic
) -> list[dict[str, Any]]:
    """A row for each number of tokens and direction."""
    rank, ranks, experts = dist.get_rank(), dist.get_world_size(), spec.experts
    ids = draw(parse_routing(spec.routing), spec.seed, ranks, TOKENS[1], experts, spec.top_k)
    device = torch.device("cuda", torch.cuda.current_device())
    buffers = Buffers(spec, buffer_rows(rank_plan(ids, experts, rank)), device)
    rows = []
    for tokens in sizes_of(*TOKENS):
        some = ids[:, :tokens]
        moved = volumes(some, experts, spec.hidden * dtype(spec.datatype).itemsize)
        exchange = opened.exchange(spec, rank_plan(some, experts, rank), rank, buffers)
        for direction in DIRECTIONS:
            operation, stated = exchange.whole(direction), moved.wire_bytes(direction)
            operation()
            repeats = int(LEAST / stated) + 1
            before = counters(buses, traffic)
            for _ in range(repeats):
                operation()
            after = counters(buses, traffic)
            differences = compared(repeats, moved.matrix(direction), before, after)
            rows.append(
                {
                    "backend": name,
                    "experts": experts,
                    "tokens": tokens,
                    "direction": direction,
                    "repeats": repeats,
                    "wire_bytes": stated,
                    "differences": differences,
                }
            )
    return rows


def main() -> int:
    out = Path(sys.argv[1])
    dist.init_process_group("nccl")
    device = dist.get_rank() % torch.cuda.device_count()
    torch.cuda.set_device(device)
    buses: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(buses, bus_of(device))
    traffic = GpuTraffic()
    rows = []
    for name in parse_backends(sys.argv[2]):
        opened = backend(name).open(MoeSpec(), len(buses))
        for experts in EXPERTS:
            rows += measured(name, opened, MoeSpec(experts=experts), buses, traffic)
        opened.close()
    traffic.close()
    worst = max(abs(one) for row in rows for one in row["differences"])
    if dist.get_rank() == 0:
        out.write_text(json.dumps({"buses": buses, "rows": rows}, indent=1) + "\n")
        for row in rows:
            low, high = min(row["differences"]), max(row["differences"])
            print(
                f"{row['backend']:9} {row['experts']:4} experts, {row['tokens']:5} tokens,"
                f" {row['direction']:8} {row['wire_bytes'] / 1e6:8.2f} MB,"
                f" counted {low:+.2%} to {high:+.2%}"
            )
        print(f"largest difference: {worst:.2%}, allowed {ALLOWED:.0%}")
    dist.destroy_process_group()
    return int(worst > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
