"""Output of nixlbench as its `printConfig` and `printStats` write it, for times of a model."""

from collections.abc import Iterable

TITLES = (
    ("Block Size (B)", 20),
    ("Batch Size", 15),
    ("B/W (GB/Sec)", 15),
    ("Avg Lat. (us)", 15),
    ("Avg Prep (us)", 15),
    ("P99 Prep (us)", 15),
    ("Avg Post (us)", 15),
    ("P99 Post (us)", 15),
    ("Avg Tx (us)", 15),
    ("P99 Tx (us)", 15),
)
OPTIONS = {
    "Runtime (--runtime_type=[etcd])": "ETCD",
    "ETCD Endpoint ": "http://10.0.0.1:2379",
    "Worker type (--worker_type=[nixl,nvshmem])": "nixl",
    "Backend (--backend=[UCX,GDS,GDS_MT,POSIX,Mooncake,HF3FS,OBJ,AZURE_BLOB])": "UCX",
    "Device list (--device_list=dev1,dev2,...)": "all",
    "Pipeline depth (--pipeline_depth=N)": "1",
    "Initiator seg type (--initiator_seg_type=[DRAM,VRAM])": "VRAM",
    "Target seg type (--target_seg_type=[DRAM,VRAM])": "VRAM",
    "Scheme (--scheme=[pairwise,manytoone,onetomany,tp])": "pairwise",
    "Mode (--mode=[SG,MG])": "SG",
    "Op type (--op_type=[READ,WRITE])": "WRITE",
    "Num initiator dev (--num_initiator_dev=N)": "1",
    "Max block size (--max_block_size=N)": "67108864",
    "Num threads (--num_threads=N)": "1",
    "Use Device API (--use_device_api=[0,1])": "1",
    "Device API Kernel block threads (--num_threads=N)": "256",
}
BLOCKS = tuple(1 << power for power in range(12, 27))


def configuration(**options: object) -> str:
    """The lines before a table; `threads` is --num_threads."""
    lines = []
    for name, value in OPTIONS.items():
        option = name.partition("--")[2].partition("=")[0]
        lines.append(f"{name:<60}: {options.get(option, value)}\n")
    stars = "*" * 160 + "\n"
    return f"{stars}NIXLBench Configuration\n{stars}{''.join(lines)}{'-' * 160}\n\n"


def table(lines: Iterable[str]) -> str:
    titles = "".join(f"{title:<{width}}" for title, width in TITLES)
    return f"{titles}\n{'-' * 160}\n{''.join(lines)}"


def row(block: int, batch: int, gb_s: float, lat_us: float, tx_us: float) -> str:
    times = (lat_us, 11.0, 11.0, 0.8, 1.0, tx_us, 1.2 * tx_us)
    text = f"{block:<20}{batch:<15}{gb_s:<15.6f}" + "".join(f"{each:<15.1f}" for each in times)
    return f"{text}\n"


def nixlbench(
    fixed_us: float,
    gb_s: float,
    *,
    batch: int = 1,
    threads: int = 1,
    blocks: Iterable[int] = BLOCKS,
    scale: float = 1.0,
    **options: object,
) -> str:
    """A run whose requests take a fixed time and the time of their bytes at a rate; `scale` is by
    how much the program overstates the rate.
    """
    lines = []
    for block in blocks:
        in_flight = block * batch * threads
        time_us = fixed_us + in_flight / gb_s / 1e3
        rate = scale * in_flight / time_us / 1e3
        lines.append(row(block, batch, rate, time_us / batch, time_us - 0.8))
    return configuration(num_threads=threads, **options) + table(lines)
