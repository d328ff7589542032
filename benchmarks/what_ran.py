"""Does a row name what NCCL ran, and is its time the same without asking?

    what_ran.py [--ranks 2] [--seconds 90] [--out FOLDER]

First, runs of all_reduce and all_gather from 8 B to 256 MiB in which NCCL_ALGO and NCCL_PROTO leave
one choice: every row must name it. sendrecv must name sends. Then, until the time is up, runs of
all_reduce in turn with and without busbw's profiler plugin (NCCL_PROFILER_PLUGIN=none): the medians
of both must be no further apart than the runs of a side. The sides begin in turn.

Prints a line for each forced choice and for each size, and how ranks are connected. FOLDER gets
each command with its output and its result. Exit code 1 if a row names something else. Times that
are further apart are marked.

Needs 2 GPUs or more, busbw with its packages for them and an mpirun, and busbw-native of the same
version, or its library in BUSBW_PLUGIN.
"""

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "src"))

from busbw.core.result import Result  # noqa: E402 - found by the path above
from busbw.core.sizes import format_size  # noqa: E402
from busbw.report.read import read  # noqa: E402

LIMIT_S = 60.0  # of one command
SWEEP = ("--timing", "classic", "--check", "0", "-b", "8", "-e", "256M", "-f", "8")
FORCED = (
    ("all_reduce", "Ring", "LL"),
    ("all_reduce", "Ring", "LL128"),
    ("all_reduce", "Ring", "Simple"),
    ("all_reduce", "Tree", ""),
    ("all_gather", "Ring", "Simple"),
)
WITH, WITHOUT = "with", "without"
FEWEST_ROUNDS = 3


class Runs:
    """Runs of busbw, whose outputs are kept in a folder."""

    def __init__(self, folder: Path, ranks: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.ranks, self.number = folder, ranks, 0
        self.took_s = 0.0

    def run(self, collective: str, *words: str, **variables: str) -> Result:
        """The result of a sweep; exits if it fails."""
        self.number += 1
        stem = self.folder / f"{self.number:02}_{collective}"
        command = [sys.executable, "-m", "busbw", "run", collective, "--engine", "nccl", "--ran"]
        command += [*SWEEP, "-np", str(self.ranks), "--no-history", *words]
        command += ["--json", f"{stem}.json", "--force"]
        path = os.pathsep.join(filter(None, (str(HERE.parent / "src"), os.getenv("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path, **variables}
        began = time.monotonic()
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        self.took_s = time.monotonic() - began
        set_variables = " ".join(f"{name}={value}" for name, value in variables.items())
        line = f"$ {set_variables} {shlex.join(command)}\n"
        Path(f"{stem}.txt").write_text(line + done.stdout + done.stderr, encoding="utf-8")
        if done.returncode:
            sys.exit(f"{line}exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr}")
        result = read(Path(f"{stem}.json").read_bytes(), stem.name)
        assert isinstance(result, Result)
        return result


def others(result: Result, algorithm: str, protocol: str) -> Iterator[str]:
    """The rows that name something else than these; any protocol for an empty one. Rows without
    data, as of 8 B over more than 2 ranks, run nothing.
    """
    for row in filter(lambda row: row.size_bytes, result.rows):
        for ran in (row.ran, row.ran_in_place or row.ran):
            right = ran is not None and ran.algorithm == algorithm and ran.channels > 0
            if not right or (protocol and ran and ran.protocol != protocol):
                yield f"{format_size(row.size_bytes)}: {ran}"


def check_forced(runs: Runs) -> bool:
    """Whether all rows name what was forced."""
    wrong = False
    print(f"{'collective':<11} {'forced':<12} rows  other  channels")
    for collective, algorithm, protocol in FORCED:
        variables = {"NCCL_ALGO": algorithm} | ({"NCCL_PROTO": protocol} if protocol else {})
        result = runs.run(collective, **variables)
        bad = list(others(result, algorithm, protocol))
        channels = sorted({row.ran.channels for row in result.rows if row.ran})
        name = f"{algorithm} {protocol}".strip()
        print(f"{collective:<11} {name:<12} {len(result.rows):>4}  {len(bad):>5}  {channels}")
        for text in bad[:3]:
            print(f"  {text}")
        if result.ran_unknown:
            print(f"  {result.ran_unknown}")
        wrong |= bool(bad)
    sends = runs.run("sendrecv")
    bad = list(others(sends, "SendRecv", ""))
    print(f"{'sendrecv':<11} {'':<12} {len(sends.rows):>4}  {len(bad):>5}")
    print("connections:", sends.ran.transports() if sends.ran else "unknown", flush=True)
    return wrong or bool(bad)


def measured(runs: Runs, seconds: float) -> dict[str, dict[int, list[float]]]:
    """Seconds of each run by side and size."""
    times: dict[str, dict[int, list[float]]] = {WITH: {}, WITHOUT: {}}
    end, round_s, number = time.monotonic() + seconds, 0.0, 0
    while number < FEWEST_ROUNDS or time.monotonic() + round_s < end:
        round_s = 0.0
        for side in (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH):
            variables = {"NCCL_PROFILER_PLUGIN": "none"} if side == WITHOUT else {}
            result = runs.run("all_reduce", **variables)
            round_s += runs.took_s
            for row in result.rows:
                if row.out_of_place:
                    of_size = times[side].setdefault(row.size_bytes, [])
                    of_size.append(row.out_of_place.time_s)
        number += 1
    return times


def print_times(times: dict[str, dict[int, list[float]]]) -> None:
    """A line for each size."""
    print(f"{'size':>10}  with us  without us  apart %  runs apart %  rounds")
    for size, with_s in times[WITH].items():
        without_s = times[WITHOUT][size]
        one, other = statistics.median(with_s), statistics.median(without_s)
        spread = max(max(side) - min(side) for side in (with_s, without_s)) / other
        apart = one / other - 1
        mark = "" if abs(apart) <= spread else "  beyond"
        print(
            f"{format_size(size):>10}  {1e6 * one:7.2f}  {1e6 * other:10.2f}  {100 * apart:7.2f}"
            f"  {100 * spread:12.2f}  {len(with_s):>6}{mark}"
        )


def main() -> None:
    """See the docstring of the module."""
    parser = argparse.ArgumentParser(description="see the docstring")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--out", type=Path, default=Path("what_ran"))
    options = parser.parse_args()
    began = time.monotonic()
    runs = Runs(options.out, options.ranks)
    wrong = check_forced(runs)
    print_times(measured(runs, options.seconds - (time.monotonic() - began)))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
