"""How often a cell that is called precise misses the true median, in regimes whose disturbances
outlast a visit.

python benchmarks/visits.py [TRIALS] > benchmarks/visits_202611/coverage.txt     some minutes on 8
    cores
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit" / "stats"))

import disturbances

from busbw.core.sweep import Sampling

SAMPLINGS = {
    "1 % at 99 %": Sampling(max_time_s=3000),
    "5 % at 95 %": Sampling(precision=0.05, confidence=0.95, max_time_s=3000),
}
Outcome = tuple[str, bool, int, int]


def outcome(name: str, sampling: Sampling, seed: int) -> Outcome:
    """Why it stopped, whether it is wrong, and its visits and samples."""
    made = disturbances.trial(disturbances.REGIMES[name], sampling, seed)
    return made.decision.stopped, made.wrong(sampling), len(made.visits), sum(map(len, made.visits))


def line(name: str, precision: str, found: list[Outcome]) -> str:
    """One row of the table."""
    count, ok = len(found), sum(stopped == "ok" for stopped, *_ in found)
    wrong = sum(missed for _, missed, *_ in found)
    covered = 1 - wrong / ok if ok else 1.0
    visits, samples = median(row[2] for row in found), median(row[3] for row in found)
    return (
        f"{name:20} {precision:12} {ok / count:6.3f} {covered:8.3f} {1 - wrong / count:8.3f}"
        f" {visits:7.0f} {samples:8.0f}"
    )


def main() -> None:
    """Print the table."""
    trials = int(sys.argv[1]) if sys.argv[1:] else 300
    print(f"{trials} trials; {disturbances.BETWEEN} samples of other cells between two visits")
    print(
        f"{'regime':20} {'precision':12} {'ok':>6} {'covered':>8} {'right':>8} {'visits':>7}"
        f" {'samples':>8}"
    )
    with ProcessPoolExecutor() as pool:
        for name in disturbances.REGIMES:
            for precision, sampling in SAMPLINGS.items():
                found = list(
                    pool.map(
                        outcome, [name] * trials, [sampling] * trials, range(trials), chunksize=8
                    )
                )
                print(line(name, precision, found), flush=True)


if __name__ == "__main__":
    main()
