"""Many fault runs: `python tests/faults/run.py --runs 200 --seed 1`.

One line a run, then a table; exit 1 when any run was not right.
"""

import argparse
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "netlab")]

import faults  # noqa: E402 - found by the path above
import netlab  # noqa: E402

TRIES = 10
NO_HOST = "nsenter: cannot open"  # another program removed the emulated hosts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument(
        "--patience",
        type=float,
        default=1.0,
        help="a factor of all limits, for a machine that others use too",
    )
    parser.add_argument("--local", action="store_true", help="on this machine alone")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also then nothing of a run is left
    outcomes = []
    skipped = 0
    began = time.monotonic()
    for number in range(arguments.first, arguments.first + arguments.runs):
        fault = faults.draw(arguments.seed, number, hosts=not arguments.local)
        if reason := fault.kind.missing():
            skipped += 1
            print(f"{number:4} skipped: {fault}: {reason}", flush=True)
            continue
        outcome = struck(fault, arguments.patience)
        outcomes.append(outcome)
        print(
            f"{number:4} {'fine ' if outcome.fine else 'WRONG'} {outcome.seconds:5.1f} s  {fault}",
            flush=True,
        )
        if not outcome.fine:
            print(f"     {outcome}", flush=True)
    print(
        f"\n"
        f"{table(outcomes)}\n"
        f"{len(outcomes)} runs, {skipped} skipped, seed {arguments.seed},"
        f" {time.monotonic() - began:.0f} s"
    )
    return int(not all(outcome.fine for outcome in outcomes))


def struck(fault: faults.Fault, patience: float) -> faults.Outcome:
    """The outcome; tried again where the emulated hosts could not be made, as when another
    program makes some at that moment.
    """
    for tries_left in reversed(range(TRIES)):
        try:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                outcome = faults.inject(fault, Path(folder), netlab, patience)
            if NO_HOST not in outcome.error or not tries_left:
                return outcome
            print(f"     no run: {outcome.error.strip()}; again", flush=True)
        except (netlab.Unavailable, IndexError, OSError) as error:
            time.sleep(1)
            if not tries_left:
                raise
            print(f"     no run: {type(error).__name__}: {error}; again", flush=True)
    raise AssertionError("unreachable")


def table(outcomes: list["faults.Outcome"]) -> str:
    """One line a kind."""
    counted = (
        f"{'kind':18} {'runs':>5} {'hangs':>6} {'wrong names':>12} {'wrong codes':>12} {'left':>5}"
        f" {'rows lost':>10}"
    )
    lines = [f"{counted} {'s to end: median':>17} {'most':>6} {'s to clean':>11}"]
    names = [kind.name for kind in faults.KINDS]
    for name in [*names, "all"]:
        selected = [outcome for outcome in outcomes if name in ("all", outcome.fault.kind.name)]
        if not selected:
            continue
        figures = (
            len(selected),
            sum(outcome.hang for outcome in selected),
            sum(bool(outcome.wrong_name) for outcome in selected),
            sum(bool(outcome.wrong_code) for outcome in selected),
            sum(len(outcome.left) for outcome in selected),
            sum(outcome.lost for outcome in selected),
        )
        widths = (5, 6, 12, 12, 5, 10)
        seconds = [outcome.seconds for outcome in selected]
        counts = " ".join(
            f"{figure:>{width}}" for figure, width in zip(figures, widths, strict=True)
        )
        lines.append(
            f"{name:18} {counts} {statistics.median(seconds):>17.1f} {max(seconds):>6.1f}"
            f" {max(outcome.clean_s for outcome in selected):>11.1f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
