"""The cost of watching: CPU time and memory of a watch of 16 RDMA ports, read from a tree of files
with the layout of sysfs.

A separate process reads every counter of every port, computes the rates, judges them and makes the
    table. Half of the counters change
between readings. The driver's work for each read of sysfs is not included. Prints the share of one
    core, the peak memory, and missed
deadlines:
  python3 benchmarks/watch_cost.py --seconds 60 --interval 1
  python3 benchmarks/watch_cost.py --seconds 600 --interval 0.1
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread

from busbw.core.watch_counters import port_counters
from busbw.host.link_counters import LinkCounters
from busbw.host.source import LiveMachine
from busbw.watch import text as view
from busbw.watch.totals import Page
from busbw.watch.watcher import Watcher, ticks

PORTS = 16
NET_DEV = (
    "Inter-| Receive | Transmit\n"
    " face |bytes packets ...\n"
    "    lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
)


def tree(root: Path) -> list[Path]:
    """A host with RDMA ports of 400 Gbit/s; the files of their counters."""
    files = []
    for index in range(PORTS):
        device = root / f"sys/class/infiniband/mlx5_{index}"
        port = device / "ports/1"
        texts = {
            "link_layer": "InfiniBand",
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "rate": "400 Gb/sec (4X NDR)",
        }
        texts |= {row.read_from: "0" for row in port_counters()} | {
            "hw_counters/lifespan": "10",
            "../../device/numa_node": "0",
        }
        for name, text in texts.items():
            (port / name).parent.mkdir(parents=True, exist_ok=True)
            (port / name).write_text(f"{text}\n")
        files += [port / row.read_from for row in port_counters()]
    for name, text in {
        "dev": NET_DEV,
        "snmp": "Tcp: RetransSegs OutSegs\nTcp: 1 100\n",
        "netstat": "",
    }.items():
        (root / "proc/net").mkdir(parents=True, exist_ok=True)
        (root / f"proc/net/{name}").write_text(text)
    return files


def count_up(files: list[Path], stop: Event, interval_s: float) -> None:
    """Change every second counter once per interval."""
    value = 0
    while not stop.wait(interval_s):
        value += 1_000_000
        for file in files[::2]:
            file.write_text(f"{value}\n")


def watch(root: Path, interval_s: float, seconds: float, *, exported: bool) -> None:
    """Watch the tree and print the cost."""
    traffic = LinkCounters(LiveMachine(root), gpus=False)
    first = traffic.read()
    watcher, page, missed = Watcher("host", first), Page(first), 0
    used, start, samples = time.process_time(), time.monotonic(), 0
    for late in ticks(interval_s, Event(), last=round(seconds / interval_s)):
        sample = traffic.read()
        watched = watcher.take(sample, late)
        missed += late
        samples += 1
        view.table(watched)
        if exported:
            page.take(sample, watched)
    share = (time.process_time() - used) / (time.monotonic() - start)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    counters = sum(len(group.values) for group in first.groups.values())
    print(
        f"{PORTS} ports, {counters} values, every {interval_s:g} s for {seconds:g}"
        f" s{', exported' if exported else ''}:",
        end=" ",
    )
    print(
        f"{100 * share:.2f} % of one core, {most / 1e6:.0f} MB at most, {samples} samples, {missed}"
        " missed"
    )


def main() -> None:
    """Make the tree, change it from another process, and watch it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--exported", action="store_true", help="as with --listen")
    parser.add_argument("--tree", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.tree:
        watch(given.tree, given.interval, given.seconds, exported=given.exported)
        return
    with tempfile.TemporaryDirectory() as folder:
        files, stop = tree(Path(folder)), Event()
        writer = Thread(target=count_up, args=(files, stop, given.interval))
        writer.start()
        try:
            words = [sys.executable, __file__, *sys.argv[1:], "--tree", folder]
            subprocess.run(words, check=True, timeout=given.seconds + 60)
        finally:
            stop.set()
            writer.join()


if __name__ == "__main__":
    main()
