"""alltoallv's matrix for each size of a sweep: from --counts, or else from nccl-tests'
environment variables.
"""

import hashlib
import os
from collections.abc import Sequence

from busbw.core import layouts
from busbw.core.alltoallv_counts import HINT, MatrixFile, Zipf, parse_counts
from busbw.core.env import ALLTOALLV
from busbw.core.errors import UsageError
from busbw.core.given_file import MOST, read_text
from busbw.core.sweep import SweepSpec
from busbw.measure import zipf
from busbw.measure.alltoallv import (
    Matrix,
    generated_bytes,
    parse_matrix,
    parse_weights,
    scaled_bytes,
)


class Matrices:
    """Makes the matrices of one sweep over `ranks` ranks.

    UsageError where the source cannot be used.

    `source` is that of core.traffic.Traffic; `from_file` tells that the values are a file's.
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
            self._spread = _number(ALLTOALLV.spread, 1.0, 0.0, 1.0)
            self.source = "" if self._spread == 1 else f"spread {self._spread:g}"

    def at(self, size: int, whole_parts: int) -> Matrix:
        """Bytes from rank i to rank j at a size; `whole_parts` is the size cut to whole parts
        for each rank.
        """
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
            self._weights = [[load] * self.ranks for load in zipf.loads(counts, self.ranks)]
            return
        text = _read(counts.path, f"--counts {self.spec.counts}", HINT)
        self._weights = parse_weights(text, self.ranks, counts.path)
        self._is_file(self._weights)

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
            text, self.ranks, _number(ALLTOALLV.matrix_scale, 1.0, 0.0, float("inf")), name
        )
        self._is_file(self._exact)

    def _is_file(self, values: Sequence[Sequence[float]]) -> None:
        every = [list(map(float, row)) for row in values]
        self.source = f"matrix sha256:{hashlib.sha256(repr(every).encode()).hexdigest()[:16]}"
        self.from_file = True


def _read(name: str, asked: str, hint: str) -> str:
    try:
        return read_text(name, MOST)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise UsageError(f"{asked}: {reason}", hint) from error


def _number(variable: str, default: float, low: float, high: float) -> float:
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
