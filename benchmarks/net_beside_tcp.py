"""The net plugin beside NCCL's Socket and raw TCP, between two emulated hosts with GPUs: rates of
large all_reduces, and what they cost the cores.

    net_beside_tcp.py RAWTCP [-p RANKS] [--rounds 3] [-b 16M] [-e 256M] [--out FOLDER]

RAWTCP is the program `rawtcp` of native/crates/harness. Each round runs raw TCP both ways, and then
all_reduce with Socket by default, with 16 channels of Socket, and with the plugin, in another order
each time. Each of these runs twice, with few and with many operations: the difference of what all
cores of the machine were busy, over the difference of the bytes between the hosts in both
directions, is the cost; of raw TCP it is the whole of one run. All cores count, with the waiting
threads of NCCL and CUDA, so nothing else may run. Each way a ring of n ranks moves 2 (n-1)/n of the
size between the hosts, a tree once the size: what counts is what NCCL ran.

Prints medians of all placements, directions and rounds, with the lowest and highest. FOLDER gets
the output of each command.

    net_beside_tcp.py raw RAWTCP OPTIONS      what gpu_hosts.py starts on each host for raw TCP
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "src"))

from busbw.core.result import Result, ResultRow  # noqa: E402 - found by the path above
from busbw.core.sizes import format_size  # noqa: E402
from busbw.report.read import read  # noqa: E402

LIMIT_S = 120.0  # of one command
PORT = "28731"
SOCKET_16 = {"NCCL_MIN_NCHANNELS": "16", "NCCL_SOCKET_NTHREADS": "1", "NCCL_NSOCKS_PERTHREAD": "1"}
WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "socket": ("socket", {}),
    "socket16": ("socket", SOCKET_16),
    "busbw": ("busbw", {}),
}
RAW = {
    "8 streams": ("--streams", "8"),
    "8 streams, 32 MiB of memory": ("--streams", "8", "--piece", str(32 << 20)),
}
FEW, MANY = 5, 25  # operations
RAW_S = 3.0  # beside which the start and the end of the hosts cost little
BUSY = (1, 2, 3, 6, 7)  # columns of /proc/stat: user, nice, system, irq, softirq
Samples = dict[str, list[float]]


def busy_s() -> float:
    """Seconds that all cores of this machine have worked since its start."""
    columns = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
    return sum(int(columns[at]) for at in BUSY) / os.sysconf("SC_CLK_TCK")


def raw_rank(words: Sequence[str]) -> int:
    """Serve on the first host; on the second, run as soon as the server is there."""
    rawtcp, *options = words
    address, ended = os.environ["MASTER_ADDR"], Path(os.environ["RAW_ENDED"])
    if os.environ["RANK"] == "0":
        serve = [rawtcp, "serve", address, PORT]
        with subprocess.Popen(serve, stdout=subprocess.DEVNULL) as serving:
            end = time.monotonic() + LIMIT_S
            while not ended.exists() and serving.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
            serving.terminate()
        return 0 if ended.exists() else 1
    try:
        return raw_run([rawtcp, "run", address, PORT, *options])
    finally:
        ended.touch()


def raw_run(command: Sequence[str]) -> int:
    """Print what raw TCP measures. The server may still be starting."""
    for _ in range(50):
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if run.returncode == 0:
            break
        time.sleep(0.1)
    print(run.stdout or run.stderr, flush=True)
    return run.returncode


class Runs:
    """Commands over both hosts, whose outputs are kept in a folder."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.folder, self.number = options, options.out, 0
        self.folder.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, words: Sequence[str], **variables: str) -> str:
        """The output of gpu_hosts.py with these words; exits if it fails."""
        self.number += 1
        command = [sys.executable, str(HERE / "gpu_hosts.py"), *words]
        done = subprocess.run(
            command,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        file = self.folder / f"{self.number:02}_{name}.txt"
        file.write_text(f"{variables} {command}\n{done.stdout}{done.stderr}", encoding="utf-8")
        if done.returncode:
            sys.exit(f"{file}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr}")
        return done.stdout

    def raw(self, number: int, options: Sequence[str]) -> tuple[list[float], float]:
        """GB/s of each direction, and CPU seconds a GB."""
        ended = self.folder / "raw_ended"
        ended.unlink(missing_ok=True)
        words = ["0", "each", __file__, "raw", self.options.rawtcp, *options]
        words += ["--both", "--seconds", str(RAW_S), "--congestion", "cubic"]
        before = busy_s()
        text = self.start(f"raw_{number}", words, RAW_ENDED=str(ended))
        busy = busy_s() - before
        row = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
        rates = [row["to_GBps"], row["from_GBps"]]
        return rates, busy / (sum(rates) * RAW_S)

    def all_reduce(self, way: str, operations: int) -> tuple[Result, float]:
        """A sweep, and the seconds that the cores were busy."""
        net, variables = WAYS[way]
        file = self.folder / f"{self.number + 1:02}_{way}_{operations}.json"
        words = ["-p", str(self.options.ranks), "0", "run", "all_reduce", "--engine", "nccl"]
        words += ["--ran", "--timing", "classic", "--check", "0", "--iters", str(operations)]
        words += ["-b", self.options.least, "-e", self.options.most, "-f", "4", "--net", net]
        words += ["--json", str(file)]
        before = busy_s()
        self.start(f"{way}_{operations}", words, **variables)
        busy = busy_s() - before
        result = read(file.read_bytes(), file.name)
        assert isinstance(result, Result)
        return result, busy


def crossing_bytes(row: ResultRow, ranks: int) -> float:
    """What one operation moves from one host to the other."""
    tree = row.ran is not None and row.ran.algorithm == "Tree"
    return row.size_bytes * (1.0 if tree else 2 * (ranks - 1) / ranks)


def measure(runs: Runs, way: str, rates: Samples, costs: Samples) -> None:
    """Rates of a way by size, and its cost."""
    _, few_s = runs.all_reduce(way, FEW)
    result, many_s = runs.all_reduce(way, MANY)
    moved = 0.0
    for row in result.rows:
        cells = [cell for cell in (row.out_of_place, row.in_place) if cell]
        crossing = crossing_bytes(row, 2 * runs.options.ranks)
        moved += len(cells) * crossing * 2 * (MANY - FEW)
        of_size = rates.setdefault(f"{way} {format_size(row.size_bytes)}", [])
        of_size += [crossing / cell.time_s / 1e9 for cell in cells]
    costs.setdefault(way, []).append((many_s - few_s) / (moved / 1e9))


def show(title: str, samples: Samples) -> None:
    """A line for each row."""
    print(f"# {title}: median (lowest to highest)")
    for name, values in samples.items():
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"{name:36} {middle:7.2f} ({low:.2f} to {high:.2f})", flush=True)


def main() -> int:
    """Measure and print."""
    if sys.argv[1:2] == ["raw"]:
        return raw_rank(sys.argv[2:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rawtcp")
    parser.add_argument("-p", dest="ranks", type=int, default=1, help="ranks on each host")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-b", dest="least", default="16M")
    parser.add_argument("-e", dest="most", default="256M")
    parser.add_argument("--out", type=Path, default=Path("net_beside_tcp"))
    runs = Runs(parser.parse_args())
    rates: Samples = {}
    costs: Samples = {}
    for number in range(runs.options.rounds):
        for at, (name, options) in enumerate(RAW.items()):
            of_run, cost = runs.raw(at, options)
            rates.setdefault(f"raw TCP, {name}", []).extend(of_run)
            costs.setdefault(f"raw TCP, {name}", []).append(cost)
        ways = list(WAYS)
        first = number % len(ways)
        for way in ways[first:] + ways[:first]:
            measure(runs, way, rates, costs)
    show("GB/s between the hosts, each way", rates)
    show("CPU seconds a GB, both directions counted", costs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
