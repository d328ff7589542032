"""The steps that judge a node before a job: `busbw check`, and optionally a run that must reach a busbw."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from busbw.core.exits import Exit

# A failure keeps a job away, and a step that hangs, as on a broken GPU. A warning or a value that could not be read does not.
BAD = int(Exit.BAD)
HUNG = "124|137"  # exit codes of timeout(1): the step was ended, or had to be killed
KILL_S = 10  # from one to the other


@dataclass(frozen=True, slots=True)
class Steps:
    """`check` are options of `busbw check`, `least` a run with --min-busbw or --min-percent; empty for none. `limit_s` ends a step."""

    check: Sequence[str]
    least: Sequence[str]
    limit_s: int

    def calls(self) -> list[str]:
        """A line of shell for each step, which calls the function `run`."""
        steps = [["busbw", "check", *self.check], *([["busbw", "run", *self.least, "--brief"]] if self.least else [])]
        return [f"run {shlex.join(step)}" for step in steps]
