"""The bytes from each rank to each other in alltoallv: generated with a spread, or from a matrix file.

Rules of nccl-tests 2.19.6: every value is cut to a multiple of 16 bytes; with a spread of 1 only a single rank sends to itself.
"""

from collections.abc import Sequence

from busbw.core.env import ALLTOALLV
from busbw.core.errors import UsageError
from busbw.core.layouts import GRAIN_BYTES

LARGEST_BYTES = 1 << 40  # more than any GPU holds


def generated_bytes(total: int, ranks: int, spread: float) -> list[list[int]]:
    """Bytes from rank i to rank j when each sends about `total`: even at spread 0, growing with (j - i) mod n at spread 1."""
    weight = ranks * (ranks - 1) / 2
    row = [(1 - spread) * total / ranks + spread * distance * total / weight for distance in range(ranks)] if weight else [total]
    floored = [int(value) // GRAIN_BYTES * GRAIN_BYTES for value in row]
    return [[floored[(j - i) % ranks] for j in range(ranks)] for i in range(ranks)]


def parse_matrix(text: str, ranks: int, scale: float, source: str) -> list[list[int]]:
    """A square matrix of bytes: a row per line, values separated by white space or commas, comments after #.

    Of a matrix for more ranks the first rows and columns are used. UsageError names the invalid row and value, or the scale's variable.
    """
    if not 0 <= scale < float("inf"):
        raise UsageError(f"{ALLTOALLV.matrix_scale}={scale:g}: not a finite number of 0 or more", f"unset {ALLTOALLV.matrix_scale}")
    rows = [row for line in text.splitlines() if (row := line.partition("#")[0].replace(",", " ").split())]
    if len(rows) < ranks:
        raise UsageError(f"{source}: {len(rows)} rows for {ranks} ranks", "give one row of bytes per rank")
    for number, row in enumerate(rows):
        if len(row) != len(rows):
            raise UsageError(
                f"{source}: row {number} has {len(row)} values in a matrix of {len(rows)} rows", "give one value per row in each row"
            )
    return [[_bytes(value, scale, f"{source}: row {number}") for value in row[:ranks]] for number, row in enumerate(rows[:ranks])]


def _bytes(value: str, scale: float, where: str) -> int:
    try:
        size = float(value) * scale
    except ValueError:
        size = -1.0
    if not 0 <= size < float("inf"):
        raise UsageError(f"{where}: '{value}' is not a number of bytes", "write bytes as numbers of 0 or more")
    if size > LARGEST_BYTES:
        scaled = f" times {ALLTOALLV.matrix_scale} {scale:g}" if scale != 1 else ""
        raise UsageError(f"{where}: '{value}'{scaled} is more than any memory holds", f"give each pair at most {LARGEST_BYTES} bytes")
    return int(size) // GRAIN_BYTES * GRAIN_BYTES


def elements(matrix: Sequence[Sequence[int]], itemsize: int) -> tuple[tuple[int, ...], ...]:
    """The matrix in elements."""
    return tuple(tuple(size // itemsize for size in row) for row in matrix)
