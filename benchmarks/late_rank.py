"""How often the right rank is named: runs of four CPU ranks at 1 MiB, one of which, in turn, begins
every operation 200 us late.

Counts runs whose only `late_rank` finding names that rank, and runs without a fault that name any.
    Prints one line per run and a summary:
  python3 benchmarks/late_rank.py 100
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

RANKS, LATE_US, LIMIT_S = 4, 200, 120


def late_ranks(words: list[str]) -> list[str]:
    """Messages of the `late_rank` findings of one run."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "result.json")
        line = [
            "busbw",
            "run",
            "all_reduce",
            "--engine",
            "mpi",
            "-np",
            str(RANKS),
            "-b",
            "1M",
            "-e",
            "1M",
            "--max-time",
            "0.3",
        ]
        subprocess.run(
            [*line, *words, "--json", str(file)], check=True, capture_output=True, timeout=LIMIT_S
        )
        findings = json.loads(file.read_text(encoding="utf-8"))["findings"]
    return [finding["message"] for finding in findings if finding["id"] == "late_rank"]


def main() -> None:
    """Run and count."""
    runs = int(sys.argv[1])
    right = quiet = 0
    for number in range(runs):
        rank = number % RANKS
        said = late_ranks(["--inject", f"late:rank={rank},us={LATE_US}"])
        right += len(said) == 1 and said[0].startswith(f"rank {rank} on ")
        print(f"run {number + 1}, rank {rank} late: {said}", flush=True)
    for number in range(runs // 4):
        said = late_ranks([])
        quiet += not said
        print(f"run {number + 1}, none late: {said}", flush=True)
    print(
        f"named rightly in {right} of {runs}; nobody named in {quiet} of {runs // 4} without a"
        " fault"
    )


if __name__ == "__main__":
    main()
