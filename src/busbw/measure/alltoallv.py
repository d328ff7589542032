"""The bytes from each rank to each other in alltoallv, for each size of a sweep.

They come from --counts, a matrix in a file or the lookups of a sharded table, or else from
nccl-tests' environment variables, a matrix or a spread. The rules for the variables are those of
nccl-tests 2.19.6: every value is cut to a multiple of 16 bytes, and with a spread of 1 a rank sends
to itself only if it is the only one.

The lookups are those of a table that is sharded by rows, when the popularity of ids follows a power
law. Rows are sharded as in TorchRec (row-wise): rank r holds rows r x block to (r + 1) x block - 1,
with block = rows / ranks rounded up. The numbers are expected values: no ids are drawn, so that a
batch of any size costs the same, and all ranks compute the same numbers.
"""

import hashlib
import itertools
import math
import os
import random
from collections.abc import Callable, Sequence

from busbw.core import layouts
from busbw.core.alltoallv import HINT, MatrixFile, Zipf, parse_counts
from busbw.core.env import ALLTOALLV
from busbw.core.errors import UsageError
from busbw.core.given_file import MAX_FILE_BYTES, read_text
from busbw.core.layouts import GRAIN_BYTES
from busbw.core.sweep import SweepSpec

# Each of the most popular ids has a row of its own; the others are spread evenly over the rows.
HEAD = 1 << 14
# Beyond HEAD, sums are over buckets of 1/64 of their popularity rank: within 1e-4 for exponents up
# to 2.
BUCKETS = 64
DIGITS = 9  # rounding errors, which differ between C libraries, must not change the bytes of a pair

Weight = Callable[[float], float]
LARGEST_BYTES = 1 << 40  # more than any GPU holds


def loads(spec: Zipf, ranks: int) -> list[float]:
    """The rows that each rank sends, relative to the rank that sends most.

    All ranks ask with the same distribution.
    """
    weights = _weights_in_order if spec.sorted else _weights_scattered
    by_rank = weights(spec, ranks, _weight(spec))
    largest = max(by_rank)
    return [round(weight / largest, DIGITS) for weight in by_rank]


def unique_ids(spec: Zipf) -> float:
    """The expected number of different ids in a batch of `spec.ids`."""
    return _sum(_chance_in_a_batch(spec), 0, spec.rows)


def _weight(spec: Zipf) -> Weight:
    return _chance_in_a_batch(spec) if spec.dedup else lambda k: k**-spec.exponent


def _chance_in_a_batch(spec: Zipf) -> Weight:
    """The probability that the k-th most popular id is in a batch: 1 - (1 - p) ** ids."""
    total = _sum(lambda k: k**-spec.exponent, 0, spec.rows)

    def chance(k: float) -> float:
        p = k**-spec.exponent / total
        return 1.0 if p >= 1 else -math.expm1(spec.ids * math.log1p(-p))

    return chance


def _sum(weight: Weight, low: int, high: int) -> float:
    """The sum of weight(k) for k from low + 1 to high.

    It is exact up to HEAD. Beyond, each bucket counts with the weight at its middle.
    """
    total = math.fsum(weight(k) for k in range(low + 1, min(high, HEAD) + 1))
    start = max(low, HEAD)
    while start < high:
        end = min(start + start // BUCKETS, high)
        total += (end - start) * weight((start + end + 1) / 2)
        start = end
    return total


def _weights_in_order(spec: Zipf, ranks: int, weight: Weight) -> list[float]:
    """The weight of each rank's rows, if the k-th most popular id is row k - 1."""
    block = -(-spec.rows // ranks)
    edges = [min(rank * block, spec.rows) for rank in range(ranks + 1)]
    return [_sum(weight, low, high) for low, high in itertools.pairwise(edges)]


def _weights_scattered(spec: Zipf, ranks: int, weight: Weight) -> list[float]:
    """The weight of each rank's rows, if ids are scattered.

    Each popular id has a row of its own, chosen by the seed; the others share the rows that are
    left on each rank.
    """
    block = -(-spec.rows // ranks)
    rows_left = [max(min(block, spec.rows - rank * block), 0) for rank in range(ranks)]
    weights = [0.0] * ranks
    for k, row in enumerate(_popular_rows(spec), 1):
        weights[row // block] += weight(k)
        rows_left[row // block] -= 1
    all_left = sum(rows_left)
    if not all_left:
        return weights
    unpopular = _sum(weight, HEAD, spec.rows)
    return [
        popular + unpopular * left / all_left
        for popular, left in zip(weights, rows_left, strict=True)
    ]


def _popular_rows(spec: Zipf) -> list[int]:
    """Different rows, one for each of the most popular ids.

    Only random() is the same in every version of Python.
    """
    rng = random.Random(spec.seed)
    if spec.rows <= 2 * HEAD:
        return sorted(range(spec.rows), key=lambda _: rng.random())[:HEAD]
    chosen: dict[int, None] = {}
    while len(chosen) < HEAD:
        chosen[int(rng.random() * spec.rows)] = None
    return list(chosen)


Matrix = list[list[int]]


def generated_bytes(total: int, ranks: int, spread: float) -> Matrix:
    """Bytes from rank i to rank j when each sends about `total`: even at spread 0, growing with
    (j - i) mod n at spread 1.
    """
    if ranks == 1:
        return [[whole_grains(total)]]
    distances = ranks * (ranks - 1) / 2
    even = (1 - spread) * total / ranks
    by_distance = [
        whole_grains(even + spread * distance * total / distances) for distance in range(ranks)
    ]
    return [_rotated(by_distance, i) for i in range(ranks)]


def _rotated(by_distance: Sequence[int], rank: int) -> list[int]:
    """The bytes that `rank` sends to each rank, from those to the rank at each distance."""
    ranks = len(by_distance)
    return [by_distance[(j - rank) % ranks] for j in range(ranks)]


def scaled_bytes(weights: Sequence[Sequence[float]], size: int) -> Matrix:
    """The weights as bytes: the largest total that a rank sends or receives becomes `size`, or
    less by the cut to 16 bytes.
    """
    columns = zip(*weights, strict=True)
    largest = max(*map(sum, weights), *map(sum, columns))
    scale = size / largest
    return [_scaled_row(row, scale) for row in weights]


def _scaled_row(row: Sequence[float], scale: float) -> list[int]:
    return [whole_grains(value * scale) for value in row]


def whole_grains(size: float) -> int:
    """The largest multiple of 16 bytes that is not above `size`."""
    return int(size) // GRAIN_BYTES * GRAIN_BYTES


def parse_matrix(text: str, ranks: int, scale: float, source: str) -> Matrix:
    """A square matrix of bytes for `ranks` ranks.

    The text has a row per line, values separated by white space or commas, and comments after #. Of
    a matrix for more ranks, the first rows and columns are used. UsageError names the invalid row
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
    matrix = []
    for number, row in enumerate(rows[:ranks]):
        matrix.append(
            [_bytes(word, scale, f"{source}: row of rank {number}") for word in row[:ranks]]
        )
    return matrix


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
    weights = []
    for number, row in enumerate(rows):
        weights.append([_number(word, f"{source}: row of rank {number}") for word in row])
    if not any(map(any, weights)):
        raise UsageError(
            f"{source}: all values are 0",
            "give the bytes, or the table rows, that each rank sends to each other",
        )
    return weights


def _rows(text: str) -> list[list[str]]:
    """The words of each line that has any, without comments."""
    rows = [line.partition("#")[0].replace(",", " ").split() for line in text.splitlines()]
    return [row for row in rows if row]


def _refuse_ragged(rows: Sequence[Sequence[str]], source: str) -> None:
    for number, row in enumerate(rows):
        if len(row) != len(rows):
            raise UsageError(
                f"{source}: row of rank {number} has {len(row)} values in a matrix of"
                f" {len(rows)} rows",
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
    """The matrix of bytes as numbers of elements of `itemsize` bytes."""
    return tuple(_counts(row, itemsize) for row in matrix)


def _counts(row: Sequence[int], itemsize: int) -> tuple[int, ...]:
    return tuple(size // itemsize for size in row)


class Matrices:
    """Makes the matrices of one sweep over `ranks` ranks.

    UsageError where the source cannot be used. `source` is that of core.alltoallv.Traffic;
    `from_file` says whether the values are those of a file.
    """

    def __init__(self, spec: SweepSpec, ranks: int) -> None:
        self.spec, self.ranks = spec, ranks
        self.source, self.from_file = "", False
        self._weights: Sequence[Sequence[float]] = ()
        self._exact: Matrix = []
        if spec.counts:
            self._from_counts(parse_counts(spec.counts))
        elif os.environ.get(ALLTOALLV.matrix_file):
            self._from_variables(os.environ[ALLTOALLV.matrix_file])
        else:
            self._spread = _environment_number(ALLTOALLV.spread, 1.0, 0.0, 1.0)
            self.source = "" if self._spread == 1 else f"spread {self._spread:g}"

    def at(self, size: int, whole_parts: int) -> Matrix:
        """Bytes from rank i to j; `whole_parts` is the size cut to whole parts for each rank."""
        if self._weights:
            return scaled_bytes(self._weights, size)
        if not self._exact:
            return generated_bytes(whole_parts, self.ranks, self._spread)
        largest = max(layouts.matrix_totals(self._exact))
        if largest > size:
            name = os.environ[ALLTOALLV.matrix_file]
            raise UsageError(
                f"{name}: a rank moves {largest} bytes, more than -e {size}",
                f"give -b {largest} -e {largest}",
            )
        return self._exact

    def _from_counts(self, counts: Zipf | MatrixFile) -> None:
        for name in (ALLTOALLV.matrix_file, ALLTOALLV.matrix_scale, ALLTOALLV.spread):
            if os.environ.get(name):
                raise UsageError(
                    f"--counts {self.spec.counts} with {name}={os.environ[name]}: both give the"
                    " bytes",
                    f"unset {name}",
                )
        if isinstance(counts, Zipf):
            self.source = counts.text
            self._weights = [[load] * self.ranks for load in loads(counts, self.ranks)]
            return
        text = _read(counts.path, f"--counts {self.spec.counts}", HINT)
        self._weights = parse_weights(text, self.ranks, counts.path)
        self._name_file(self._weights)

    def _from_variables(self, name: str) -> None:
        text = _read(
            name, f"{ALLTOALLV.matrix_file}={name}", "name a readable file of bytes per pair"
        )
        if self.spec.min_bytes != self.spec.max_bytes:
            raise UsageError(
                f"{ALLTOALLV.matrix_file} needs one size, but -b and -e differ",
                "give -b and -e the same value",
            )
        self._exact = parse_matrix(
            text,
            self.ranks,
            _environment_number(ALLTOALLV.matrix_scale, 1.0, 0.0, float("inf")),
            name,
        )
        self._name_file(self._exact)

    def _name_file(self, values: Sequence[Sequence[float]]) -> None:
        rows = [list(map(float, row)) for row in values]
        self.source = f"matrix sha256:{hashlib.sha256(repr(rows).encode()).hexdigest()[:16]}"
        self.from_file = True


def _read(name: str, option: str, hint: str) -> str:
    try:
        return read_text(name, MAX_FILE_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise UsageError(f"{option}: {reason}", hint) from error


def _environment_number(variable: str, default: float, low: float, high: float) -> float:
    text = os.environ.get(variable, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise UsageError(
            f"{variable}={text}: not a number from {low:g} to {high:g}",
            f"unset {variable}, or give such a number",
        )
    return value
