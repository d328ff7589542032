"""Runs one sweep with two sets of options in turn, so that both meet the same state of the
machine.
"""

import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from busbw.cli.file_kinds import read_sweep
from busbw.cli.options.parameters import shell_words
from busbw.cli.streams import talk
from busbw.core import program
from busbw.core.errors import Exit, NoMeasurement, UsageError
from busbw.core.result import Result
from busbw.stats.compare import Named


def alternate(options: Sequence[str], sweep: Sequence[str], rounds: int) -> list[list[Named]]:
    """The results of `busbw run SWEEP OPTIONS` for each text of options, `rounds` times, the order
    reversed in every second round.

    Ctrl-C ends it; results of complete rounds are kept. NoMeasurement if a run fails, UsageError
    if it does not take its arguments.
    """
    words = [shell_words("--run", text) for text in options]
    results: list[list[Named]] = [[] for _ in options]
    sides = list(range(len(options)))
    with tempfile.TemporaryDirectory(prefix="busbw-compare-") as folder:
        for number in range(rounds):
            done: dict[int, Named] = {}
            try:
                for side in sides:
                    talk(f"round {number + 1} of {rounds}: {options[side]}")
                    file = Path(folder, f"{side}-{number}.json")
                    done[side] = options[side], _run([*sweep, *words[side]], file)
            except KeyboardInterrupt:
                if number == 0:
                    raise
                talk(f"note: interrupted; {number} of {rounds} rounds are compared")
                break
            for side, result in done.items():
                results[side].append(result)
            sides.reverse()
    return results


def _run(arguments: Sequence[str], file: Path) -> Result:
    """The result of `busbw run` with these arguments, through a file."""
    line = program.module_command("busbw", "run", *arguments, "--json", str(file))
    code = subprocess.run(line, stdout=subprocess.DEVNULL, check=False).returncode
    command = f"busbw run {shlex.join(arguments)}"
    if code == Exit.USAGE:
        raise UsageError(f"{command}: refused with the error above", f"try it alone: {command}")
    if code == Exit.INTERRUPTED:
        raise KeyboardInterrupt
    if code not in (Exit.OK, Exit.BAD):
        raise NoMeasurement(f"{command} ended with {code}", "run it alone to see why")
    return read_sweep(str(file), None)
