"""What judges a node before a job: a Slurm prolog, and an init container with the same steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from busbw.core.exits import Exit
from busbw.launch.manifest.filler import ShellSyntax, fill_json, fill_script


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps: `busbw check`, then a run that must reach a busbw.

    `check` are options of `busbw check`. `least` is a run with --min-busbw or --min-percent, empty
    for none. `limit_s` ends a step. A step that fails or hangs, as on a broken GPU, keeps the job
    away; with `strict` also one that could not judge the node, but never a warning.
    """

    check: Sequence[str]
    least: Sequence[str]
    limit_s: int
    strict: bool = False

    def values(self) -> dict[str, Any]:
        """The placeholders of prolog.sh and preflight.sh; `bad` are exit codes for a `case`."""
        bad = [Exit.BAD, Exit.UNKNOWN] if self.strict else [Exit.BAD]
        return {
            "limit_s": self.limit_s,
            "bad": ShellSyntax("|".join(str(int(code)) for code in bad)),
            "check": ["busbw", "check", *self.check],
            "least": ["busbw", "run", *self.least, "--brief"] if self.least else None,
        }


def prolog(steps: Steps) -> str:
    """A script for Slurm, which drains a node whose prolog fails."""
    return fill_script("prolog.sh", steps.values())


def preflight_script(steps: Steps) -> str:
    """The init container's script; what it prints is the container's log."""
    return fill_script("preflight.sh", steps.values())


def preflight(image: str, limits: dict[str, Any], steps: Steps) -> str:
    """A patch that adds the init container to objects with a pod template (Job, StatefulSet).

    It is JSON for `kubectl patch --patch-file`. `limits` are the container's devices, for example
    `{"nvidia.com/gpu": 8}`, which the pod's containers get afterwards.
    """
    values = {"image": image, "limits": limits, "script": preflight_script(steps)}
    return fill_json("preflight.json", values)
