"""A prolog for Slurm: a node that fails a check is drained before a job starts on it."""

import shlex
from collections.abc import Sequence

from busbw.core.exits import Exit


def text(check: Sequence[str], least: Sequence[str], limit_s: int) -> str:
    """The script. `check` are options of `busbw check`, `least` a run with --min-busbw or --min-percent; empty for none.

    Slurm drains a node whose prolog fails. So only a check that failed does so (exit code 1): not a warning, and not a value that could not
    be read.
    """
    steps = [["busbw", "check", *check], *([["busbw", "run", *least, "--brief"]] if least else [])]
    lines = [
        "#!/bin/sh",
        "# Slurm runs it as root on each node of a job: Prolog=/etc/slurm/busbw-prolog.sh in slurm.conf, PrologFlags=Alloc.",
        f"# Its limit is {limit_s} s a step; PrologEpilogTimeout must be longer.",
        "",
        "run() {",
        f'    out=$(timeout {limit_s} "$@" 2>&1)',
        f"    [ $? -eq {int(Exit.BAD)} ] || return 0",
        '    echo "print busbw: $(echo "$out" | grep -m 1 -E \'^(FAIL|error)\')"',
        '    logger -t busbw-prolog "$out"',
        "    exit 1",
        "}",
        "",
        *(f"run {shlex.join(step)}" for step in steps),
    ]
    return "\n".join([*lines, ""])
