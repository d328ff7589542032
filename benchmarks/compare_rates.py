"""How often `busbw compare` is wrong: simulated pairs of sweeps, equal or with one difference.

`python benchmarks/compare_rates.py [SWEEPS]` prints one line per case; 1000 sweeps each take 10 to
20 minutes on one core. Seeds are fixed.
"""

import itertools
import math
import random
import sys
import time
from collections.abc import Callable, Sequence

from busbw.core.comparison import Comparison, ComparisonVerdict
from busbw.core.result import Cell, Result, ResultRow
from busbw.core.sweep import Sampling, SweepSpec
from busbw.stats.compare import compare
from busbw.stats.sampling import first_visit_samples, next_step

SIZES = [8 << i for i in range(30)]
SLOW_SIZE = 1 << 20
FROM_SLOW_SIZE = [size for size in SIZES if size >= SLOW_SIZE]
SAMPLING = Sampling()
QUICK_S = 1e-5  # a sample
Samples = Callable[[random.Random, int], list[float]]


def result(times: dict[int, list[list[float]]]) -> Result:
    """A result with these visits of each size, out of place."""
    rows = []
    for size, visits in times.items():
        samples = list(itertools.chain.from_iterable(visits))
        middle = sorted(samples)[len(samples) // 2]
        cell = Cell(
            middle, size / middle, size / middle, samples_s=samples, visits=list(map(len, visits))
        )
        rows.append(ResultRow(size, size // 4, "float", "sum", -1, cell, None, len(samples)))
    return Result(SweepSpec(collective="all_reduce", sampling=SAMPLING), rows=rows, complete=True)


def one(draw: random.Random, middle: float, cv: float, tail: float) -> float:
    """A sample: lognormal about its median, and with a chance of `tail` longer by up to several
    times.
    """
    sample = middle * draw.lognormvariate(0, cv)
    return sample * (1 + draw.expovariate(2)) if draw.random() < tail else sample


def many_shapes(draw: random.Random, sweeps: int) -> list[Comparison]:
    """Equal pairs: each size has its own cv of 0.5 to 5 %, a heavy tail in a third, and on each
    side its own 8 to 32 visits of 8.
    """
    pairs = []
    for _ in range(sweeps):
        sides: tuple[dict[int, list[list[float]]], dict[int, list[list[float]]]] = ({}, {})
        for size in SIZES:
            middle, cv, tail = (
                1e-5 + size / 3e11,
                draw.uniform(0.005, 0.05),
                draw.choice((0, 0, 0.05)),
            )
            for side in sides:
                side[size] = [
                    [one(draw, middle, cv, tail) for _ in range(8)]
                    for _ in range(draw.randint(8, 32))
                ]
        pairs.append(compare([("a", result(sides[0]))], [("b", result(sides[1]))]))
    return pairs


def adaptive(
    draw: random.Random, middle: float, cv: float, alike: float = 0.0
) -> list[list[float]]:
    """Visits as precise timing takes them with its defaults (99 %, 1 %); `alike` is the
    correlation of neighbors within a visit.
    """
    visits: list[list[float]] = []
    more = first_visit_samples(SAMPLING, QUICK_S)
    while more:
        state, visit = draw.gauss(0, 1), []
        for _ in range(more):
            visit.append(middle * (1 + cv * state))
            state = alike * state + (1 - alike * alike) ** 0.5 * draw.gauss(0, 1)
        visits.append(visit)
        more = next_step(visits, SAMPLING, QUICK_S * sum(map(len, visits))).more
    return visits


def adaptive_sweep(
    draw: random.Random,
    cv: float,
    slower: float = 1.0,
    alike: float = 0.0,
    apart: float = 0.0,
    tails: int = 0,
    slow: Sequence[int] = (SLOW_SIZE,),
) -> Result:
    """A run: sizes of `slow` take `slower` times as long, and each size differs from run to run by
    `apart` (a standard deviation), with tails as those of Student's t with `tails` degrees of
    freedom.
    """
    times = {}
    for size in SIZES:
        middle = (1e-5 + size / 3e11) * math.exp(apart * deviate(draw, tails))
        if size in slow:
            middle *= slower
        times[size] = adaptive(draw, middle, cv, alike)
    return result(times)


def deviate(draw: random.Random, tails: int) -> float:
    """A number with mean 0 and variance 1: normal, or Student's t with this many degrees of
    freedom.
    """
    normal = draw.gauss(0, 1)
    if not tails:
        return normal
    chi_square = sum(draw.gauss(0, 1) ** 2 for _ in range(tails))
    return normal / math.sqrt(chi_square / (tails - 2))


def adaptive_pairs(
    draw: random.Random,
    sweeps: int,
    runs: int = 1,
    slower: float = 1.0,
    slow: Sequence[int] = (SLOW_SIZE,),
    **how: float,
) -> list[Comparison]:
    """Pairs of `runs` runs a side; b's are `slower` at the sizes `slow`."""
    return [
        compare(
            [(f"a{i}", adaptive_sweep(draw, **how)) for i in range(runs)],
            [(f"b{i}", adaptive_sweep(draw, slower=slower, slow=slow, **how)) for i in range(runs)],
        )
        for _ in range(sweeps)
    ]


def alarmed(comparison: Comparison) -> bool:
    """Whether any cell is called slower or faster."""
    return bool(comparison.of(ComparisonVerdict.SLOWER) or comparison.of(ComparisonVerdict.FASTER))


def found(comparison: Comparison) -> bool:
    """Whether the slow size is called slower."""
    return any(cell.key.size_bytes == SLOW_SIZE for cell in comparison.of(ComparisonVerdict.SLOWER))


CASES: tuple[
    tuple[str, Callable[[random.Random, int], list[Comparison]], Callable[[Comparison], bool]], ...
] = (
    ("equal, 8 to 32 visits, cv 0.5 to 5 %, tails: any false alarm", many_shapes, alarmed),
    (
        "equal, sampled adaptively at cv 1 %: any false alarm",
        lambda d, n: adaptive_pairs(d, n, cv=0.01),
        alarmed,
    ),
    (
        "sizes from 1 MiB 20 % slower, runs 1 % apart, one a side: any found",
        lambda d, n: adaptive_pairs(d, n, slower=1.2, slow=FROM_SLOW_SIZE, cv=0.01, apart=0.01),
        alarmed,
    ),
    (
        "neighbours correlated 0.3, cv 1 %: any false alarm",
        lambda d, n: adaptive_pairs(d, n, cv=0.01, alike=0.3),
        alarmed,
    ),
    (
        "neighbours correlated 0.6, cv 3 %: any false alarm",
        lambda d, n: adaptive_pairs(d, n, cv=0.03, alike=0.6),
        alarmed,
    ),
    (
        "runs 3 % apart, one a side: any false alarm",
        lambda d, n: adaptive_pairs(d, n, cv=0.01, apart=0.03),
        alarmed,
    ),
    (
        "runs 3 % apart with tails (t, 3), one a side: any false alarm",
        lambda d, n: adaptive_pairs(d, n, cv=0.01, apart=0.03, tails=3),
        alarmed,
    ),
    (
        "runs 3 % apart with tails (t, 3), three a side: any false alarm",
        lambda d, n: adaptive_pairs(d, n, 3, cv=0.01, apart=0.03, tails=3),
        alarmed,
    ),
    (
        "runs 1 % apart, three a side, one size 10 % slower: found",
        lambda d, n: adaptive_pairs(d, n, 3, 1.1, cv=0.01, apart=0.01),
        found,
    ),
    (
        "runs 2 % apart, four a side: any false alarm",
        lambda d, n: adaptive_pairs(d, n, 4, cv=0.01, apart=0.02),
        alarmed,
    ),
    (
        "runs 0.5 % apart, four a side, one size 3 % slower: found",
        lambda d, n: adaptive_pairs(d, n, 4, 1.03, cv=0.01, apart=0.005),
        found,
    ),
    (
        "runs 2 % apart, five a side, one size 10 % slower: found",
        lambda d, n: adaptive_pairs(d, n, 5, 1.1, cv=0.01, apart=0.02),
        found,
    ),
)


def main(words: list[str]) -> None:
    """Every case, with its share and the seconds it took."""
    sweeps = int(words[0]) if words else 1000
    for seed, (name, make, counts) in enumerate(CASES, start=1):
        start = time.perf_counter()
        hits = sum(counts(comparison) for comparison in make(random.Random(seed), sweeps))
        print(
            f"{name:<66} {100 * hits / sweeps:5.1f} % of {sweeps} "
            f" ({time.perf_counter() - start:.0f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
