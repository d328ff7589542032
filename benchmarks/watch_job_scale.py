"""What a look of `busbw watch job` takes at many ranks.

    watch_job_scale.py [RANKS]

The ranks' files are made in memory (/dev/shm), with 600 steps each, and all are replaced before
each look. Prints milliseconds of a look that compares the ranks and of one that does not, with the
verdict, and the memory of the process.
"""

import json
import platform
import random
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from busbw.job.live.judge import judge
from busbw.job.live.reader import JobFolder

RANKS, STEPS, LOOKS = 1024, 600, 12
RANKS_OF_HOST = 8
PAUSE_S = 60.0  # after which ranks are compared anew


def write(folder: Path, ranks: int, first: int) -> None:
    """All files, after `first` more steps."""
    chance = random.Random(first)
    for rank in range(ranks):
        now = {
            "version": 1,
            "rank": rank,
            "world": ranks,
            "host": f"h{rank // RANKS_OF_HOST}",
            "pid": 1000 + rank,
            "started": 1,
            "pid_namespace": "",
            "launch": "this",
            "ended": False,
            "written_ns": 0,
            "first_step": first,
            "steps_us": [50_000 + round(chance.gauss(0, 500), 1) for _ in range(STEPS)],
            "waits_us": [6_000 + round(chance.gauss(0, 200), 1) for _ in range(STEPS)],
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ""}},
            "pg_status": {"0": {"last_enqueued_collective": 2 * (first + STEPS)}},
            "entries": [],
        }
        part = folder / f"part_{rank}"
        part.write_text(json.dumps(now))
        part.replace(folder / f".rank_{rank}.now")


def main() -> None:
    """Look, and print the times."""
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else RANKS
    print(f"{platform.machine()}, Python {platform.python_version()}, {ranks} ranks")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        watched = JobFolder(folder)
        plain, compared, clock_s, times = [], [], 0.0, None
        for number in range(LOOKS):
            write(folder, ranks, 20 * number)
            clock_s += PAUSE_S if number % 3 == 0 else 1.0
            start_s = time.perf_counter()
            look = watched.look(clock_s)
            found = judge(look)
            ms = 1e3 * (time.perf_counter() - start_s)
            if number == 0:
                print(f"first look, which reads all: {ms:.0f} ms: {found.message}")
            else:
                (plain if look.times is times else compared).append(ms)
            times = look.times
        for name, values in (("look", plain), ("look that compares", compared)):
            print(f"{name}: {statistics.median(values):.0f} ms, at most {max(values):.0f} ms")
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB at most")


if __name__ == "__main__":
    main()
