"""The bytes from each rank to each other in alltoallv: generated with a spread, or from a matrix.

Rules of nccl-tests 2.19.6: every value is cut to a multiple of 16 bytes; with a spread of 1 only a
single rank sends to itself.
"""

from collections.abc import Sequence

from busbw.core.env import ALLTOALLV
from busbw.core.errors import UsageError
from busbw.core.layouts import GRAIN_BYTES

LARGEST_BYTES = 1 << 40  # more than any GPU holds

Matrix = list[list[int]]


def generated_bytes(total: int, ranks: int, spread: float) -> Matrix:
    """Bytes from rank i to rank j when each sends about `total`: even at spread 0, growing with
    (j - i) mod n at spread 1.
    """
    weight = ranks * (ranks - 1) / 2
    row = (
        [
            (1 - spread) * total / ranks + spread * distance * total / weight
            for distance in range(ranks)
        ]
        if weight
        else [total]
    )
    floored = [whole_grains(value) for value in row]
    return [[floored[(j - i) % ranks] for j in range(ranks)] for i in range(ranks)]


def scaled_bytes(weights: Sequence[Sequence[float]], size: int) -> Matrix:
    """The weights as bytes: the largest total that a rank sends or receives becomes `size`, or
    less by the cut to 16 bytes.
    """
    largest = max(*map(sum, weights), *map(sum, zip(*weights, strict=True)))
    scale = size / largest
    return [[whole_grains(value * scale) for value in row] for row in weights]


def whole_grains(size: float) -> int:
    """The largest multiple of 16 bytes that is not above `size`."""
    return int(size) // GRAIN_BYTES * GRAIN_BYTES


def parse_matrix(text: str, ranks: int, scale: float, source: str) -> Matrix:
    """A square matrix of bytes: a row per line, values separated by white space or commas, comments
    after #.

    Of a matrix for more ranks the first rows and columns are used. UsageError names the invalid row
    and value, or the scale's variable.
    """
    if not 0 <= scale < float("inf"):
        raise UsageError(
            f"{ALLTOALLV.matrix_scale}={scale:g}: not a finite number of 0 or more",
            f"unset {ALLTOALLV.matrix_scale}",
        )
    rows = _rows(text)
    if len(rows) < ranks:
        raise UsageError(
            f"{source}: {len(rows)} rows for {ranks} ranks", "give one row of bytes per rank"
        )
    _refuse_ragged(rows, source)
    return [
        [_bytes(word, scale, f"{source}: row {number}") for word in row[:ranks]]
        for number, row in enumerate(rows[:ranks])
    ]


def parse_weights(text: str, ranks: int, source: str) -> list[list[float]]:
    """A matrix as above, of exactly `ranks` rows, of which only the ratios count.

    UsageError also if all values are 0.
    """
    rows = _rows(text)
    if len(rows) != ranks:
        raise UsageError(
            f"{source}: {len(rows)} rows for {ranks} ranks",
            "give one row, and one column, per rank",
        )
    _refuse_ragged(rows, source)
    weights = [
        [_number(word, f"{source}: row {number}") for word in row]
        for number, row in enumerate(rows)
    ]
    if not any(map(any, weights)):
        raise UsageError(
            f"{source}: all values are 0",
            "give the bytes, or the table rows, that each rank sends to each other",
        )
    return weights


def _rows(text: str) -> list[list[str]]:
    return [
        row
        for line in text.splitlines()
        if (row := line.partition("#")[0].replace(",", " ").split())
    ]


def _refuse_ragged(rows: Sequence[Sequence[str]], source: str) -> None:
    for number, row in enumerate(rows):
        if len(row) != len(rows):
            raise UsageError(
                f"{source}: row {number} has {len(row)} values in a matrix of {len(rows)} rows",
                "give one value per row in each row",
            )


def _number(word: str, where: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(
            f"{where}: '{word}' is not a number of bytes", "write bytes as numbers of 0 or more"
        )
    return value


def _bytes(word: str, scale: float, where: str) -> int:
    size = _number(word, where) * scale
    if size > LARGEST_BYTES:
        scaled = f" times {ALLTOALLV.matrix_scale} {scale:g}" if scale != 1 else ""
        raise UsageError(
            f"{where}: '{word}'{scaled} is more than any memory holds",
            f"give each pair at most {LARGEST_BYTES} bytes",
        )
    return whole_grains(size)


def elements(matrix: Sequence[Sequence[int]], itemsize: int) -> tuple[tuple[int, ...], ...]:
    """The matrix in elements."""
    return tuple(tuple(size // itemsize for size in row) for row in matrix)
