"""The table of releases of NCCL and the plugin tables that each looks for
(native/crates/nccl-abi/releases.csv).
"""

import csv
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parents[2] / "native" / "crates" / "nccl-abi" / "releases.csv"
# By column: how the symbols begin.
SYMBOLS = {"tuner": "ncclTunerPlugin_v", "profiler": "ncclProfiler_v", "net": "ncclNetPlugin_v"}
GIN = "ncclGinPlugin_v"


@dataclass(frozen=True)
class Release:
    """A row: for each kind the versions that NCCL looks for, newest first, and the one it uses."""

    nccl: str
    sought: dict[str, list[int]]
    used: dict[str, int]
    gin: list[int]

    @property
    def number(self) -> int:
        """As NCCL counts: 22809 of 2.28.9. Of what is newer than the last release: the largest."""
        parts = self.nccl.split(".")
        if not self.nccl[0].isdecimal():
            return 99999
        return int(parts[0]) * 10000 + int(parts[1]) * 100 + int(parts[2])


def releases() -> list[Release]:
    """All rows."""
    lines = FILE.read_text().splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return [
        Release(
            row["nccl"],
            {kind: _numbers(row[kind]) for kind in SYMBOLS},
            {kind: int(row[f"{kind}_used"]) for kind in SYMBOLS},
            _numbers(row["gin"]),
        )
        for row in rows
    ]


def _numbers(cell: str) -> list[int]:
    return [int(word) for word in cell.split()]
