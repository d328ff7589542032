"""How often `busbw history check` is wrong with few runs: simulated histories, with a new run like
them or with one slow size.

`python benchmarks/history_rates.py [CHECKS]` prints a table; 2000 checks of each kind take about
two minutes. Seeds are fixed.
"""

import random
import sys
import time
from collections.abc import Callable

from busbw.core.cells import CellKey, cells
from busbw.core.history import HistoryCheck, Standing
from busbw.core.result import Cell, Result, ResultRow
from busbw.core.sweep import SweepSpec
from busbw.stats.history import check

SIZES = [8 << i for i in range(30)]
SLOW_SIZE = 1 << 30
CONFIDENCE = 0.95
SPREAD = 0.01  # standard deviation of the logarithm of a size's time, from run to run
RUNS = (3, 4, 5, 8, 12, 18, 19)
SLOWER = (1.1, 1.3)
Draw = Callable[[random.Random], list[float]]  # the deviations of a run's sizes, in units of SPREAD


def normal(draw: random.Random) -> list[float]:
    """Each size on its own."""
    return [draw.gauss(0, 1) for _ in SIZES]


def drifting(draw: random.Random) -> list[float]:
    """Half of the variance is common to all sizes of a run."""
    shared = draw.gauss(0, 1)
    return [0.5**0.5 * (shared + draw.gauss(0, 1)) for _ in SIZES]


def heavy(draw: random.Random) -> list[float]:
    """Student's t with 3 degrees of freedom: wider tails on both sides."""
    return [draw.gauss(0, 1) / (draw.gammavariate(1.5, 2) / 3) ** 0.5 for _ in SIZES]


def skewed(draw: random.Random) -> list[float]:
    """Exponential: never much faster, sometimes slower."""
    return [draw.expovariate(1) for _ in SIZES]


def outliers(draw: random.Random) -> list[float]:
    """Normal, but in one run of ten some size takes 30 % longer."""
    deviations = normal(draw)
    if draw.random() < 0.1:
        deviations[draw.randrange(len(SIZES))] += 26.2
    return deviations


KINDS: tuple[tuple[str, Draw], ...] = (
    ("normal", normal),
    ("normal, half of it common to all sizes", drifting),
    ("heavy tails (t with 3 degrees of freedom)", heavy),
    ("skewed (exponential)", skewed),
    ("one run of ten has a size 30 % slower", outliers),
)


def run(draw: random.Random, kind: Draw, slower: float = 1.0) -> Result:
    """One run; SLOW_SIZE takes `slower` times as long."""
    rows = []
    for size, deviation in zip(SIZES, kind(draw), strict=True):
        time_s = (
            (1e-5 + size / 3e11)
            * 2.718281828459045 ** (SPREAD * deviation)
            * (slower if size == SLOW_SIZE else 1.0)
        )
        rows.append(
            ResultRow(
                size,
                size // 4,
                "float",
                "sum",
                -1,
                Cell(time_s, size / time_s, size / time_s),
                None,
                20,
            )
        )
    return Result(SweepSpec(collective="all_reduce"), rows=rows, complete=True)


def times(result: Result) -> dict[CellKey, float]:
    """Seconds by cell."""
    return {key: figure.time_s for key, figure in cells(result)}


def checks(
    draw: random.Random, kind: Draw, runs: int, count: int, slower: float = 1.0
) -> list[HistoryCheck]:
    """Checks of a new run against a new history each."""
    return [
        check(run(draw, kind, slower), {i: times(run(draw, kind)) for i in range(runs)}, CONFIDENCE)
        for _ in range(count)
    ]


def hidden(draw: random.Random, runs: int) -> HistoryCheck:
    """A check of a run with a slow size against a history in which one run of ten has some slow
    size too.
    """
    return check(
        run(draw, normal, SLOWER[-1]),
        {i: times(run(draw, outliers)) for i in range(runs)},
        CONFIDENCE,
    )


def alarms(found: list[HistoryCheck]) -> float:
    """The share with any cell called slower."""
    return sum(one.standing is Standing.SLOWER for one in found) / len(found)


def hits(found: list[HistoryCheck]) -> float:
    """The share in which the slow size is called slower."""
    return sum(
        any(cell.slower and cell.key.size_bytes == SLOW_SIZE for cell in one.cells) for one in found
    ) / len(found)


def fine(found: list[HistoryCheck]) -> float:
    """The share that is called fine: wrongly, where a size is slower."""
    return sum(one.standing is Standing.FINE for one in found) / len(found)


def main(words: list[str]) -> None:
    """A line for each kind: false alarms by the number of stored runs; then how often a slow
    size is found, or called fine.
    """
    count = int(words[0]) if words else 2000
    start = time.perf_counter()
    print(f"{'stored runs':<58}" + "".join(f"{runs:>8}" for runs in RUNS))

    def line(title: str, share: Callable[[random.Random, int], float]) -> None:
        shares = [100 * share(random.Random(runs), runs) for runs in RUNS]
        print(f"{title:<58}" + "".join(f"{value:>7.1f}%" for value in shares), flush=True)

    for name, kind in KINDS:
        line(
            f"false alarms: {name}",
            lambda draw, runs, kind=kind: alarms(checks(draw, kind, runs, count)),
        )
    for slower in SLOWER:
        line(
            f"one size {slower:.0%} of its time: found",
            lambda d, n, by=slower: hits(checks(d, normal, n, count // 4, by)),
        )
    for slower in (1.0, *SLOWER):
        line(
            f"one size {slower:.0%} of its time: FINE",
            lambda d, n, by=slower: fine(checks(d, normal, n, count // 4, by)),
        )
    rare = f"one size {SLOWER[-1]:.0%} of its time, some stored runs too"
    for title, share in (("found", hits), ("FINE", fine)):
        line(
            f"{rare}: {title}", lambda d, n, of=share: of([hidden(d, n) for _ in range(count // 4)])
        )
    print(
        f"{count} checks for each share of false alarms, {count // 4} for the others;"
        f" {time.perf_counter() - start:.0f} s"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
