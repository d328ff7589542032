"""How often the stated interval covers the truth on recorded samples: repeats of a size against the
median of all of them.

Takes results of e.g. `busbw run all_reduce -b 1K -e 1K -N 200 --confidence 95% --check 0 --json
    1K.json`, one file per size. Prints the
share of repeats whose interval covers the pooled median, and writes the samples (ns) to the first
    file:
  python3 benchmarks/coverage.py coverage.json 8.json 1K.json ...
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from busbw.core.json_codec import decode
from busbw.core.result import Result
from busbw.core.sizes import format_size

PLACEMENTS = ("out_of_place", "in_place")


def repeats(file: Path) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """A file's size, and each repeat's interval and samples in ns, by placement."""
    rows = decode(file.read_bytes(), Result).rows
    cells = {place: [getattr(row, place) for row in rows] for place in PLACEMENTS}
    return rows[0].size_bytes, {
        place: [
            {
                "low_ns": round(cell.low_s * 1e9, 1),
                "high_ns": round(cell.high_s * 1e9, 1),
                "dropped": cell.dropped,
                "tick_ns": round((cell.tick_s or 0.0) * 1e9, 1),
                "samples_ns": [round(sample * 1e9) for sample in cell.samples_s],
            }
            for cell in every
        ]
        for place, every in cells.items()
    }


def covered(every: list[dict[str, Any]]) -> list[bool]:
    """Whether each repeat's interval covers the median of all samples."""
    middle = statistics.median(
        sample for one in every for sample in one["samples_ns"][one["dropped"] :]
    )
    return [one["low_ns"] <= middle <= one["high_ns"] for one in every]


def main() -> None:
    """Print the table and write the file."""
    target, *files = map(Path, sys.argv[1:])
    cells = dict(repeats(file) for file in files)
    hits: list[bool] = []
    for size, places in cells.items():
        for place, every in places.items():
            found = covered(every)
            hits += found
            samples = statistics.median(len(one["samples_ns"]) for one in every)
            words = f"{format_size(size):>8} {place:<12}"
            print(
                f"{words} {len(every)} repeats, {samples:.0f} samples each (median), covered"
                f" {sum(found) / len(found):.3f}"
            )
    print(f"all      {len(hits)} repeats, covered {sum(hits) / len(hits):.4f}")
    target.write_text(json.dumps(cells, separators=(",", ":")) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
