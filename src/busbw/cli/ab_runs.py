"""Runs one sweep with two sets of options in turn, so that both meet the same state of the
machine.
"""

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from busbw.cli.shared_options import shell_words
from busbw.cli.show import read_sweep
from busbw.cli.streams import talk
from busbw.core.errors import Exit, NoMeasurement, UsageError
from busbw.stats.compare import Named


def alternate(options: Sequence[str], sweep: Sequence[str], rounds: int) -> list[list[Named]]:
    """The results of `busbw run SWEEP OPTIONS` for both texts of options, `rounds` times, the order
    swapped in every second round.

    Ctrl-C ends it; results of complete rounds are kept. NoMeasurement if a run fails, UsageError
    for invalid arguments of the first.
    """
    words = [shell_words("--run", text) for text in options]
    found: list[list[Named]] = [[] for _ in options]
    with tempfile.TemporaryDirectory(prefix="busbw-compare-") as folder:
        for number in range(rounds):
            order = range(len(words)) if number % 2 == 0 else range(len(words) - 1, -1, -1)
            try:
                done = {
                    at: _run(
                        sweep,
                        words[at],
                        options[at],
                        Path(folder, f"{at}-{number}.json"),
                        number,
                        rounds,
                    )
                    for at in order
                }
            except KeyboardInterrupt:
                if number == 0:
                    raise
                talk(f"note: interrupted; {number} of {rounds} rounds are compared")
                break
            for at, result in done.items():
                found[at].append(result)
    return found


def _run(
    sweep: Sequence[str], words: Sequence[str], name: str, file: Path, number: int, rounds: int
) -> Named:
    talk(f"round {number + 1} of {rounds}: {name}")
    line = [sys.executable, "-m", "busbw", "run", *sweep, *words, "--json", str(file)]
    code = subprocess.run(line, stdout=subprocess.DEVNULL, check=False).returncode
    if code == Exit.USAGE:
        raise UsageError(
            f"busbw run {shlex.join([*sweep, *words])} does not take these arguments",
            "busbw run --help",
        )
    if code == Exit.INTERRUPTED:
        raise KeyboardInterrupt
    if code not in (Exit.OK, Exit.BAD):
        raise NoMeasurement(
            f"busbw run {shlex.join([*sweep, *words])} ended with {code}", "run it alone to see why"
        )
    return name, read_sweep(str(file), None)
