"""`--min-busbw` and `--min-percent` judge the intervals of all cells."""

import pytest

from busbw.cli.min_busbw import Minimum
from busbw.core.errors import Exit
from busbw.core.result import Cell, Ideal, Result, ResultRow
from busbw.core.sweep import Sampling, SweepSpec

SETTLED = (0.47, 0.43, 0.51, "ok")
STRADDLES = (2.56, 1.51, 3.64, "unstable")


def make_result(*cells: tuple[float, float | None, float | None, str]) -> Result:
    """Sizes of 1 KiB, 2 KiB and so on; of each the busbw, its interval in GB/s, and the stop."""
    rows = []
    for number, (busbw, least, most, stopped) in enumerate(cells):
        size = 1024 << number
        cell = Cell(size / (busbw * 1e9), busbw * 1e9, busbw * 1e9, 0, stopped=stopped, n=20)
        if least and most:
            cell.low_s, cell.high_s = size / (most * 1e9), size / (least * 1e9)
        rows.append(ResultRow(size, size // 4, "float", "sum", -1, cell, None, 20))
    spec = SweepSpec(collective="all_reduce", sampling=Sampling(precision=0.1))
    return Result(spec=spec, rows=rows, ideal=Ideal(4e9, "--ideal", "", ""))


@pytest.mark.parametrize(
    ("cells", "code", "words"),
    [
        ([SETTLED], Exit.BAD, "busbw 0.470 GB/s +-9.3 % at 1 KiB is below --min-busbw 2.00 GB/s"),
        ([(2.5, 2.4, 2.6, "ok")], Exit.OK, ""),
        ([SETTLED, STRADDLES], Exit.UNKNOWN, "busbw 2.56 GB/s +-69.5 % at 2 KiB; with its"),
        ([SETTLED, STRADDLES], Exit.UNKNOWN, "may be 1.51 to 3.64 GB/s; its samples did not"),
        ([SETTLED, (1.9, 1.4, 3.0, "budget")], Exit.UNKNOWN, "GB/s; allow more time with"),
        ([SETTLED, (2.56, 2.1, 3.64, "unstable")], Exit.OK, ""),
        ([SETTLED, STRADDLES, (2.2, 2.1, 2.3, "ok")], Exit.OK, ""),
        ([SETTLED, (1.5, 1.2, 1.9, "unstable")], Exit.BAD, "; unstable cells reach 1.50 GB/s"),
        ([SETTLED, (1.5, None, None, "budget")], Exit.BAD, "; less certain cells reach 1.50 GB/s"),
        ([SETTLED, (2.5, None, None, "budget")], Exit.UNKNOWN, "may be 0.00 or more"),
    ],
)
def test_a_run_fails_only_if_no_cell_may_reach_what_is_required(
    cells: list[tuple[float, float | None, float | None, str]], code: Exit, words: str
) -> None:
    result = make_result(*cells)
    by_busbw, reason = Minimum(2e9, None).judge(result)
    assert by_busbw is code and words in reason
    by_share, reason = Minimum(None, 0.5).judge(result)
    assert by_share is code
    assert ("% of the ideal" in reason) == (code is not Exit.OK)
