"""How often `busbw compare` calls one of two identical runs slower, and whether it finds a run
whose ranks share one processor.

python benchmarks/identical_pairs.py FOLDER [RUNS] [words of busbw run ...]     8 runs of all_reduce
    on two CPU ranks by default
"""

import itertools
import os
import subprocess
import sys
from pathlib import Path

from busbw.core.result import Result
from busbw.report.read import read
from busbw.stats.compare import compare

WORDS = ("all_reduce", "--engine", "mpi", "-b", "1K", "-e", "1M", "-f", "4")
PINNED = 3  # runs


def run(file: Path, words: tuple[str, ...], *, pinned: bool = False) -> Result:
    """One run; `pinned` on a single processor."""
    one = ["taskset", "-c", str(min(os.sched_getaffinity(0)))] if pinned else []
    line = [*one, sys.executable, "-m", "busbw", "run", *words, "--json", str(file), "--force"]
    subprocess.run(
        line, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600
    )
    return read(file.read_bytes(), file.name)


def slower(a: Result, b: Result) -> int:
    """Cells of b that are slower by more than the tolerance: with one, the exit code is 1."""
    return len(compare([("a", a)], [("b", b)]).beyond())


def named_as_shared(a: Result, b: Result) -> bool:
    """Whether a comparison says that ranks of b share a processor."""
    return any("bound to processor" in note for note in compare([("a", a)], [("b", b)]).notes)


def main(words: list[str]) -> None:
    """Run, compare every ordered pair, and print how many raise an alarm."""
    folder, count = Path(words[0]), int(words[1]) if words[1:] else 8
    folder.mkdir(parents=True, exist_ok=True)
    command = tuple(words[2:]) or WORDS
    runs = [run(folder / f"run_{number}.json", command) for number in range(count)]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    alarms = [slower(a, b) for a, b in itertools.permutations(runs, 2)]
    print(
        f"load average {load}; {sum(map(bool, alarms))} alarms in {len(alarms)} ordered pairs of"
        f" {count} identical runs"
    )
    shared = [
        run(folder / f"pinned_{number}.json", command, pinned=True) for number in range(PINNED)
    ]
    found = [slower(a, b) for a, b in itertools.product(runs, shared)]
    print(
        f"{sum(map(bool, found))} of {len(found)} comparisons with a run on one processor find it,"
        f" {min(found)} to {max(found)} cells"
    )
    named, others = (
        sum(named_as_shared(runs[0], result) for result in results) for results in (shared, runs)
    )
    print(
        f"{named} of {len(shared)} runs on one processor are named as such, and {others} of the"
        f" {len(runs)} others"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
