"""The steps that judge a node before a job: `busbw check`, and optionally a run that must reach a busbw."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from busbw.core.exits import Exit

# A failure keeps a job away, and a step that hangs, as on a broken GPU. A warning or a value that the system does not offer does not.
BAD, UNKNOWN = int(Exit.BAD), int(Exit.UNKNOWN)
HUNG = "124|137"  # exit codes of timeout(1): the step was ended, or had to be killed
KILL_S = 10  # from one to the other


@dataclass(frozen=True, slots=True)
class Steps:
    """`check` are options of `busbw check`, `least` a run with --min-busbw or --min-percent; empty for none. `limit_s` ends a step.

    With `strict` a step that could not judge the node keeps a job away too.
    """

    check: Sequence[str]
    least: Sequence[str]
    limit_s: int
    strict: bool = False

    @property
    def bad(self) -> str:
        """Exit codes of a step that keep a job away, as a pattern of the shell."""
        return f"{BAD}|{UNKNOWN}" if self.strict else str(BAD)

    def calls(self) -> list[str]:
        """A line of shell for each step, which calls the function `run`."""
        steps = [["busbw", "check", *self.check], *([["busbw", "run", *self.least, "--brief"]] if self.least else [])]
        return [f"run {shlex.join(step)}" for step in steps]
