"""A prolog for Slurm: a node that fails a check is drained before a job starts on it."""

from busbw.launch.manifest.steps import BAD, Steps


def text(steps: Steps) -> str:
    """The script. Slurm drains a node whose prolog fails."""
    lines = [
        "#!/bin/sh",
        "# Slurm runs it as root on each node of a job: Prolog=/etc/slurm/busbw-prolog.sh in slurm.conf, PrologFlags=Alloc.",
        f"# Each step may take {steps.limit_s} s; PrologEpilogTimeout must be longer.",
        "",
        "run() {",
        f'    out=$(timeout {steps.limit_s} "$@" 2>&1)',
        f"    [ $? -eq {BAD} ] || return 0",
        '    echo "print busbw: $(echo "$out" | grep -m 1 -E \'^(FAIL|error)\')"',
        '    logger -t busbw-prolog -- "$out"',
        f"    exit {BAD}",
        "}",
        "",
        *steps.calls(),
    ]
    return "\n".join([*lines, ""])
