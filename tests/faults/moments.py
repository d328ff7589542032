"""A rank of this machine is stopped or killed at a random moment of every phase: it must be named
within --limit + 5 s.

`python tests/faults/moments.py --runs 200 --seed 1`: one line a run, then a table; exit 1 where any
run was not right.
"""

import argparse
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product, repeat
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]

from running import Gone, Run, Setting  # noqa: E402 - found by the path above

LIMIT_S = 3.0
SLACK_S = 5.0  # after the limit
CLEAN_S = 3.0
ENDLESS = "1000000"
SWEEPS = {
    "start": ("-b", "1K", "-e", "16K"),
    "warm-up": ("-b", "64K", "-e", "1M", "-w", ENDLESS, "--check", "0"),
    "verify": ("-b", "1M", "-e", "4M", "--check", ENDLESS),
    "timing": ("-b", "1M", "-e", "64M", "--check", "0"),
    "any": ("-b", "1M", "-e", "64M", "-f", "2"),
}
TIMINGS = {
    "classic": ("--timing", "classic", "--iters", "2000"),
    "precise": ("--precision", "0.0001", "--max-time", "60"),
}
SIGNALS = {"stopped": signal.SIGSTOP, "killed": signal.SIGKILL}


@dataclass(frozen=True)
class Strike:
    """`rank` of `ranks` is hit `delay_s` after the sweep (at `start`: the rank's process) began."""

    phase: str
    timing: str
    signal_name: str
    ranks: int
    rank: int
    delay_s: float

    def __str__(self) -> str:
        return (
            f"{self.signal_name:7} {self.phase:7} {self.timing} rank {self.rank} of {self.ranks}"
            f" after {self.delay_s:.2f} s"
        )


@dataclass
class Outcome:
    """Seconds from the signal to the line that names the rank, and to the end; `wrong` describes
    any deviation.
    """

    strike: Strike
    word_s: float = 0.0
    end_s: float = 0.0
    wrong: str = ""
    error: str = ""

    @property
    def where(self) -> str:
        """Where the error says that there was no progress: `timing of 4M in place`."""
        match = re.search(r"error: (.+) made no progress", self.error)
        return match.group(1) if match else ""


def draw(seed: int, number: int) -> Strike:
    """Strike `number` of a seed: phases, timings and signals in turn, all else drawn."""
    dice = random.Random(f"{seed}/{number}")
    combinations = list(product(SWEEPS, TIMINGS, SIGNALS))
    phase, timing, signal_name = combinations[number % len(combinations)]
    ranks = dice.randint(2, 4)
    return Strike(
        phase,
        timing,
        signal_name,
        ranks,
        dice.randrange(ranks),
        dice.uniform(0, 0.5 if phase == "start" else 3),
    )


def strike(drawn: Strike, folder: Path, patience: float = 1.0) -> Outcome:
    """One run of busbw with this strike, judged; `patience` is a factor of what it has after its
    limits.
    """
    setting = Setting(
        LIMIT_S,
        LIMIT_S * 2 if drawn.phase == "start" else 60,
        0,
        ranks=drawn.ranks,
        sweep=(*SWEEPS[drawn.phase], *TIMINGS[drawn.timing]),
    )
    with Run(folder, None, setting) as run:
        run.start()
        if not (run.comes_to(0, drawn.rank) if drawn.phase == "start" else run.begins()):
            return Outcome(drawn, wrong="the run did not begin", error=run.stderr)
        time.sleep(drawn.delay_s)
        began, at = run.began, time.monotonic()
        try:
            os.kill(run.pid_of(drawn.rank), SIGNALS[drawn.signal_name])
        except Gone as error:
            return Outcome(drawn, wrong=str(error), error=run.stderr)
        # Before the sweep starts, --launch-limit applies.
        latest_s = LIMIT_S if began else setting.launch_limit_s + LIMIT_S
        latest_s += SLACK_S * patience
        ended = run.ended_within(2 * latest_s)
        outcome = Outcome(drawn, end_s=time.monotonic() - at, error=run.error)
        if not ended:
            outcome.wrong = f"hangs: {run.describe()}"
            return outcome
        naming_delays = [
            when - at for when, line in run.heard if when >= at and f"rank {drawn.rank} " in line
        ]
        outcome.word_s = naming_delays[0] if naming_delays else 0.0
        left, _ = run.left_after(CLEAN_S * patience)
        complaints = {
            f"rank {drawn.rank} is not named": not naming_delays,
            f"named after {outcome.word_s:.1f} s": bool(naming_delays)
            and outcome.word_s > latest_s,
            f"ended after {outcome.end_s:.1f} s": outcome.end_s > latest_s + 2,
            f"exit {run.code}": run.code != 3,
            f"left: {left}": bool(left),
        }
        outcome.wrong = ", ".join(words for words, is_so in complaints.items() if is_so)
    return outcome


def one_run(seed: int, number: int) -> Outcome:
    """Run and print strike `number`."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = strike(draw(seed, number), Path(folder))
    judged = "WRONG" if outcome.wrong else "fine "
    print(
        f"{number:4} {judged} named {outcome.word_s:4.1f} s, ended {outcome.end_s:4.1f} s "
        f" {outcome.strike}  {outcome.where}",
        flush=True,
    )
    if outcome.wrong:
        print(f"     {outcome.wrong}: {outcome.error}", flush=True)
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    arguments = parser.parse_args()
    begun = time.monotonic()

    with ProcessPoolExecutor(arguments.jobs) as pool:
        outcomes = list(
            pool.map(
                one_run,
                repeat(arguments.seed),
                range(arguments.first, arguments.first + arguments.runs),
            )
        )
    print(
        f"\n"
        f"{table(outcomes)}\n"
        f"{len(outcomes)} runs, seed {arguments.seed}, --limit {LIMIT_S:g},"
        f" {time.monotonic() - begun:.0f} s"
    )
    return int(any(outcome.wrong for outcome in outcomes))


def table(outcomes: list[Outcome]) -> str:
    """One line for each phase, timing and signal."""
    head = f"{'phase':8} {'timing':8} {'rank':8} {'runs':>5} {'wrong':>6}"
    lines = [f"{head} {'s to word: median':>18} {'most':>5} {'s to end: median':>17} {'most':>5}"]
    for phase, timing, signal_name in [*product(SWEEPS, TIMINGS, SIGNALS), ("all", "", "")]:
        selected = [
            outcome
            for outcome in outcomes
            if phase == "all"
            or (outcome.strike.phase, outcome.strike.timing, outcome.strike.signal_name)
            == (phase, timing, signal_name)
        ]
        if selected:
            words, ends = (
                [outcome.word_s for outcome in selected],
                [outcome.end_s for outcome in selected],
            )
            counts = f"{len(selected):>5} {sum(bool(outcome.wrong) for outcome in selected):>6}"
            seconds = (
                f"{statistics.median(words):>18.1f} {max(words):>5.1f}"
                f" {statistics.median(ends):>17.1f} {max(ends):>5.1f}"
            )
            lines.append(f"{phase:8} {timing:8} {signal_name:8} {counts} {seconds}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
