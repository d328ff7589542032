"""Intervals of precise runs compared with the range of classic runs: `interval_widths.py CLASSIC...
-- PRECISE...` (results of one sweep).

Prints for each cell the difference of the classic runs' largest and smallest time, the width of
each precise run's interval, both in percent of the median time, and the number of samples of that
run.
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

Key = tuple[int, str]
PLACES = {"out_of_place": "out of place", "in_place": "in place"}


def cells(file: str) -> dict[Key, dict[str, Any]]:
    """All cells of a result."""
    rows = json.loads(Path(file).read_text(encoding="utf-8"))["rows"]
    return {
        (row["size_bytes"], name): row[place]
        for row in rows
        for place, name in PLACES.items()
        if row.get(place)
    }


def width(cell: dict[str, Any]) -> float:
    """The width of an interval, as a share of its time; infinite without an interval."""
    return (
        (cell["high_s"] - cell["low_s"]) / cell["time_s"]
        if cell["low_s"] is not None
        else float("inf")
    )


def main(classic: list[str], precise: list[str]) -> None:
    """Print one line per cell, and a summary."""
    runs, held = [cells(file) for file in classic], [cells(file) for file in precise]
    narrow = narrow_cells = 0
    widths, spreads = [], []
    for key in runs[0]:
        times = [run[key]["time_s"] for run in runs]
        spread = (max(times) - min(times)) / statistics.median(times)
        found = [width(run[key]) for run in held]
        narrow += sum(one <= spread for one in found)
        narrow_cells += statistics.median(found) <= spread
        widths += found
        spreads.append(spread)
        each = "  ".join(
            f"{100 * one:6.2f} % of {len(run[key]['samples_s']):4}"
            for one, run in zip(found, held, strict=True)
        )
        print(f"{key[0]:>11} {key[1]:12}  classic {100 * spread:6.2f} %  precise {each}")
    print(f"{narrow} of {len(widths)} intervals are no wider than classic runs differ")
    print(f"in the middle those of {narrow_cells} of {len(runs[0])} cells")
    print(
        f"middle width {100 * statistics.median(widths):.2f} %, middle difference"
        f" {100 * statistics.median(spreads):.2f} %"
    )


if __name__ == "__main__":
    if sys.argv.count("--") != 1:
        sys.exit((__doc__ or "").strip())
    at = sys.argv.index("--")
    main(sys.argv[1:at], sys.argv[at + 1 :])
