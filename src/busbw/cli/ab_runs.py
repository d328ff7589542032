"""Runs sweeps with several sets of options in turn, so that all meet the same state of the
machine.
"""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from busbw.cli.file_kinds import read_sweep
from busbw.cli.streams import print_err
from busbw.core import program
from busbw.core.errors import BusbwError, Exit, NoMeasurement, UsageError
from busbw.core.result import Result
from busbw.launch.environment import detect
from busbw.stats.compare import Named


@dataclass(frozen=True, slots=True)
class OptionSet:
    """One set of options of `busbw run`, and its name."""

    name: str
    options: Sequence[str]


@dataclass(frozen=True, slots=True)
class Sweep:
    """The collective and its options, which all sides share; `name` is in messages, if there are
    several.
    """

    name: str
    words: Sequence[str]


Key = tuple[int, int]  # the numbers of a sweep and of a side


@dataclass(slots=True)
class Turns:
    """Rounds of all sweeps with all sides.

    `results` are in the order of the rounds, `failures` say why a side did not run a sweep. With
    `leave_out_failed` such a side is left out of that sweep, with its results; otherwise a failure
    ends the rounds. `failed` says whether one has ended them before the last.
    """

    sides: Sequence[OptionSet]
    sweeps: Sequence[Sweep]
    leave_out_failed: bool = False
    results: dict[Key, list[Named]] = field(default_factory=dict)
    failures: dict[Key, str] = field(default_factory=dict)
    failed: bool = False

    def run(self, rounds: int) -> None:
        """Run `busbw run SWEEP OPTIONS` for each sweep and side, `rounds` times.

        The sides are in reversed order in every second round. Ctrl-C ends it, and so does a run
        that does not take its arguments (UsageError) or fails (NoMeasurement): both are raised in
        the first round, and later the results of complete rounds are kept.
        """
        _refuse_launcher()
        keys = list(product(range(len(self.sweeps)), range(len(self.sides))))
        self.results = {key: [] for key in keys}
        with tempfile.TemporaryDirectory(prefix="busbw-compare-") as folder:
            for number in range(rounds):
                try:
                    done = self._round(
                        _ordered(keys, number),
                        f"round {number + 1} of {rounds}",
                        Path(folder, "result.json"),
                    )
                except (KeyboardInterrupt, BusbwError) as error:
                    if number == 0:
                        raise
                    self.failed = isinstance(error, BusbwError)
                    reason = getattr(error, "message", "interrupted")
                    print_err(f"note: {reason}; {number} of {rounds} rounds are compared")
                    return
                for key, result in done.items():
                    self.results[key].append((self.sides[key[1]].name, result))

    def _round(self, keys: Sequence[Key], title: str, file: Path) -> dict[Key, Result]:
        """A result for each key; failures are noted, or raised."""
        done = {}
        for key in keys:
            sweep, side = self.sweeps[key[0]], self.sides[key[1]]
            if key in self.failures:
                continue
            print_err(f"{title}: {', '.join(filter(None, (sweep.name, side.name)))}")
            try:
                done[key] = _run(sweep, side, file)
            except NoMeasurement as error:
                if not self.leave_out_failed:
                    raise
                self.failures[key], self.results[key] = error.message, []
        return done


def _ordered(keys: Sequence[Key], number: int) -> list[Key]:
    """The order of a round: sweep by sweep, with the sides reversed in every second round."""
    return sorted(keys, key=lambda key: (key[0], -key[1] if number % 2 else key[1]))


def _refuse_launcher() -> None:
    """UsageError in a rank of an outer launcher: each would start ranks of its own."""
    if detect(os.environ) is not None:
        raise UsageError(
            "this process is a rank of a running job, but this command starts its own ranks",
            "start it without mpirun",
        )


def dry_run(side: OptionSet, sweep: Sweep) -> int:
    """The exit code of `busbw run --dry-run`, which prints what it refuses."""
    return _code([*sweep.words, *side.options, "--dry-run"])


def _run(sweep: Sweep, side: OptionSet, file: Path) -> Result:
    file.unlink(missing_ok=True)
    words = [*sweep.words, *side.options]
    code = _code([*words, "--json", str(file)])
    command = f"busbw run {shlex.join(words)}"
    if code == Exit.USAGE:
        raise UsageError(f"{command}: refused with the error above", f"try it alone: {command}")
    if code == Exit.INTERRUPTED:
        raise KeyboardInterrupt
    if code not in (Exit.OK, Exit.BAD):
        raise NoMeasurement(f"{command} ended with {code}", "run it alone to see why")
    if not file.exists():
        raise UsageError(
            f"{command}: measured nothing",
            "leave out what only prints, such as --help, --dry-run and --print-env",
        )
    return read_sweep(str(file), None)


def _code(arguments: Sequence[str]) -> int:
    line = program.module_command("busbw", "run", *arguments)
    return subprocess.run(line, stdout=subprocess.DEVNULL, check=False).returncode
