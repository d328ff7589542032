"""The net plugin between two emulated hosts with one GPU each, joined by 1 to 8 network interfaces.

`python benchmarks/net_rails.py [--library LIB] [--nccl LIBNCCL] [latency|rails|chunks ...]` prints
a short table for each part:

* latency: all_reduce and sendrecv around 16 KiB, with and without sending from NCCL's own thread
* rails: the devices that NCCL sees, the share of each interface, and times, each interface a
  device (0) or all merged (1)
* chunks: whether NCCL asks the tuner for chunk sizes, and what a small one costs

Needs root, pyroute2, PyTorch and two GPUs; without GPUs the ranks use Gloo, which only tries the
script. `--nccl` preloads another libnccl.so.2, such as that of nvidia-nccl-cu13 2.32.3.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOSTS = ("rails1", "rails2")
LIMIT_S = 240
ROUNDS = 3
KIB, MIB = 1 << 10, 1 << 20
SMALL = (16 * KIB, 16 * KIB + 4, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB)
LARGE = (256 * KIB, 4 * MIB, 64 * MIB)
# Larger than any buffer of NCCL, which says so in its log if it asks the tuner.
TOO_LARGE, SMALLEST = 1 << 30, 4096


@contextlib.contextmanager
def hosts(rails: int) -> Iterator[None]:
    """Two network namespaces, joined by as many veth pairs; rail r has the network 10.80.r.0/24."""
    from pyroute2 import IPRoute, NetNS, netns

    with contextlib.ExitStack() as undo, IPRoute() as links:
        for name in HOSTS:
            netns.create(name)
            undo.callback(netns.remove, name)
        for rail in range(rails):
            far = {"ifname": f"rail{rail}", "net_ns_fd": HOSTS[1]}
            links.link("add", ifname=f"rail{rail}", net_ns_fd=HOSTS[0], kind="veth", peer=far)
        for number, name in enumerate(HOSTS, 1):
            with NetNS(name, flags=0) as inside:
                inside.link("set", index=1, state="up")
                for rail in range(rails):
                    index = inside.link("get", ifname=f"rail{rail}")[0]["index"]
                    inside.addr("add", index=index, address=f"10.80.{rail}.{number}", prefixlen=24)
                    inside.link("set", index=index, mtu=9000, state="up")
        time.sleep(2)  # until the kernel calls the links running
        yield


def job(library: Path, nccl: str, sizes: tuple[int, ...], **variables: str) -> dict:
    """What rank 0 measured, with the log of NCCL."""
    ranks = []
    with tempfile.TemporaryDirectory() as folder:
        for rank, host in enumerate(HOSTS):
            own = {
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "10.80.0.1",
                "MASTER_PORT": "29511",
                "CUDA_VISIBLE_DEVICES": str(rank),
                "NCCL_HOSTID": host,
                "NCCL_SOCKET_IFNAME": "rail",
                "GLOO_SOCKET_IFNAME": "rail0",
                "NCCL_NET": "busbw",
                "NCCL_NET_PLUGIN": str(library),
                "NCCL_TUNER_PLUGIN": str(library),
                "NCCL_DEBUG": "INFO",
                "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,TUNING",
                "NCCL_DEBUG_FILE": f"{folder}/log{rank}",
                **({"LD_PRELOAD": nccl} if nccl else {}),
                **variables,
            }
            argv = ["nsenter", f"--net=/var/run/netns/{host}", sys.executable, __file__, "rank"]
            words = [*argv, *map(str, sizes)]
            ranks.append(subprocess.Popen(words, env={**os.environ, **own}, stdout=subprocess.PIPE))
        try:
            out = [rank.communicate(timeout=LIMIT_S)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        if any(rank.returncode for rank in ranks):
            raise SystemExit(f"a rank failed: {[rank.returncode for rank in ranks]}")
        log = Path(folder, "log0")
        return {**json.loads(out[0]), "log": log.read_text() if log.exists() else ""}


def rank(sizes: list[int]) -> None:
    """One rank: the median time of each operation in us, and the bytes that each interface sent."""
    import torch
    import torch.distributed as dist

    gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if gpu else "gloo")
    device = torch.device("cuda", 0) if gpu else torch.device("cpu")
    times, before = {}, sent()
    for call in (all_reduce, sendrecv):
        for size in sizes:
            data, into = (torch.ones(size // 4, device=device) for _ in range(2))
            taken = [timed(call, data, into, gpu) for _ in range(320 if size < MIB else 40)]
            times[f"{call.__name__} {size}"] = statistics.median(taken[10:])
    moved = [late - early for early, late in zip(before, sent(), strict=True)]
    if dist.get_rank() == 0:
        print(json.dumps({"times_us": times, "moved": moved}))
    dist.barrier()
    dist.destroy_process_group()


def timed(call, data, into, gpu: bool) -> float:
    """Microseconds from an idle GPU to an idle GPU."""
    import torch

    done = torch.cuda.synchronize if gpu else lambda: None
    done()
    began = time.perf_counter()
    call(data, into)
    done()
    return (time.perf_counter() - began) * 1e6


def all_reduce(data, _into) -> None:
    """Over both ranks."""
    import torch.distributed as dist

    dist.all_reduce(data)


def sendrecv(data, into) -> None:
    """Both ways at once."""
    import torch.distributed as dist

    peer = 1 - dist.get_rank()
    both = [dist.P2POp(dist.isend, data, peer), dist.P2POp(dist.irecv, into, peer)]
    for work in dist.batch_isend_irecv(both):
        work.wait()


def sent() -> list[int]:
    """Bytes that each rail has sent, as the kernel counts for this network namespace."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    fields = dict(line.strip().split(":", 1) for line in lines)
    return [int(fields[name].split()[8]) for name in sorted(fields) if name.startswith("rail")]


def latency(library: Path, nccl: str) -> None:
    """Alternating runs over one rail."""
    print("\nlatency, us: median of the rounds [least most]")
    runs: dict[str, dict[str, list[float]]] = {}
    with hosts(1):
        for _ in range(ROUNDS):
            for limit in ("0", "131072"):
                found = job(library, nccl, SMALL + LARGE[1:], BUSBW_NET_INLINE_IDLE=limit)[
                    "times_us"
                ]
                for name, time_us in found.items():
                    runs.setdefault(name, {}).setdefault(limit, []).append(time_us)
    print(f"{'':22} {'INLINE_IDLE=0':>26} {'INLINE_IDLE=131072':>26}")
    for name, of_limit in runs.items():
        cells = [
            f"{statistics.median(took):8.1f} [{min(took):.1f} {max(took):.1f}]"
            for took in of_limit.values()
        ]
        print(f"{name:22} {cells[0]:>26} {cells[1]:>26}")


def rails(library: Path, nccl: str) -> None:
    """One to eight interfaces."""
    print("\nrails, merged, bytes of each interface in % | us of all_reduce, sendrecv")
    for count in (1, 2, 4, 8):
        with hosts(count):
            for merge in ("0", "1") if count > 1 else ("0",):
                variables = {"BUSBW_NET_MERGE": merge, "NCCL_MIN_NCHANNELS": "8"}
                found = job(library, nccl, LARGE, **variables)
                total = sum(found["moved"])
                shares = " ".join(f"{100 * moved / total:.0f}" for moved in found["moved"])
                times = " ".join(f"{time_us:.0f}" for time_us in found["times_us"].values())
                print(f"{count:5} {merge:>7}  {shares:32} | {times}", flush=True)


def chunks(library: Path, nccl: str) -> None:
    """A rule with a chunk size for all_reduce of 64 MiB."""
    print("\nchunk of the rule, us of all_reduce of 64 MiB, what NCCL says")
    with hosts(1), tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "table")
        for chunk in ("", str(TOO_LARGE), str(SMALLEST)):
            rule = f"2 2 all_reduce {64 * MIB} {64 * MIB} Ring Simple 4 {chunk}".strip()
            table.write_text(f"busbw-tuner-table 1\n{rule}\n")
            found = job(library, nccl, (64 * MIB,), BUSBW_TUNER_TABLE=str(table))
            signs = ("NCCL version", "TUNER/Plugin: Using", "tuner chunk size")
            lines = [line for line in found["log"].splitlines() if any(s in line for s in signs)]
            said = list(dict.fromkeys(line.partition("NCCL INFO ")[2] or line for line in lines))
            print(f"{chunk or 'none':>10} {next(iter(found['times_us'].values())):10.0f}  {said}")


PARTS = {"latency": latency, "rails": rails, "chunks": chunks}


def main() -> None:
    """Run the parts that were asked for."""
    if sys.argv[1:2] == ["rank"]:
        return rank([int(word) for word in sys.argv[2:]])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    built = ROOT / "native/target/release/libnative.so"
    parser.add_argument("--library", type=Path, default=built, help="the plugin")
    parser.add_argument("--nccl", default="", help="a libnccl.so.2 in place of PyTorch's")
    parser.add_argument("parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    asked = parser.parse_args()
    for part in asked.parts:
        PARTS[part](asked.library.resolve(), asked.nccl)
    return None


if __name__ == "__main__":
    main()
