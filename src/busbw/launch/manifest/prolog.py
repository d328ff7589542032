"""A prolog for Slurm: a node that fails a check is drained before a job starts on it."""

from busbw.launch.manifest.steps import BAD, HUNG, KILL_S, Steps


def text(steps: Steps) -> str:
    """The script. Slurm drains a node whose prolog fails."""
    lines = [
        "#!/bin/sh",
        "# Slurm runs it as root on each node of a job: Prolog=/etc/slurm/busbw-prolog.sh in slurm.conf, PrologFlags=Alloc.",
        f"# Each step may take {steps.limit_s} s; PrologEpilogTimeout must be longer.",
        "",
        "run() {",
        f'    out=$(timeout -k {KILL_S} {steps.limit_s} "$@" 2>&1)',
        "    code=$?",
        "    case $code in",
        f"    {steps.bad}) why=$(echo \"$out\" | grep -m 1 -E '^(FAIL|UNKNOWN|WARN|error)') ;;",
        f'    {HUNG}) why="$1 $2 did not end within {steps.limit_s} s" ;;',
        "    0) return 0 ;;",
        '    *) logger -t busbw-prolog -- "exit code $code: this node could not be judged, and is kept: $out"; return 0 ;;',
        "    esac",
        '    echo "print busbw: $why"',
        '    logger -t busbw-prolog -- "$why: $out"',
        f"    exit {BAD}",
        "}",
        "",
        *steps.calls(),
    ]
    return "\n".join([*lines, ""])
