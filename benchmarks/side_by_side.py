"""A Markdown table of two results of one collective, size by size: `python
benchmarks/side_by_side.py A.json B.json [in_place]`.

For PyTorch's overhead: A through the nccl engine, B through the torch engine, both in place, where
PyTorch copies nothing.
"""

import sys
from pathlib import Path

from busbw.core.result import Cell, Result, ResultRow
from busbw.core.sizes import format_size
from busbw.report.read import read


def cell(row: ResultRow, placement: str) -> Cell:
    """The row's cell of a placement."""
    found = row.in_place if placement == "in_place" else row.out_of_place
    if found is None:
        raise SystemExit(f"{format_size(row.size_bytes)} was not measured {placement}")
    return found


def table(first: Result, second: Result, placement: str) -> str:
    """One line per size that both have."""
    names = [result.library.engine for result in (first, second)]
    lines = [
        f"| size | {names[0]} us | {names[1]} us | added us | {names[0]} GB/s | {names[1]} GB/s |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    others = {row.size_bytes: row for row in second.rows}
    for row in first.rows:
        if row.size_bytes in others:
            one, two = cell(row, placement), cell(others[row.size_bytes], placement)
            micro = [1e6 * figure.time_s for figure in (one, two)]
            lines.append(
                f"| {format_size(row.size_bytes)} | {micro[0]:.1f} | {micro[1]:.1f} |"
                f" {micro[1] - micro[0]:+.1f} | {one.busbw / 1e9:.2f} | {two.busbw / 1e9:.2f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Read both files and print the table."""
    first, second = (read(Path(name).read_bytes(), name) for name in sys.argv[1:3])
    print(table(first, second, sys.argv[3] if len(sys.argv) > 3 else "in_place"))


if __name__ == "__main__":
    main()
