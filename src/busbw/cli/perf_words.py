"""Errors in the words of the compat face: options that only `busbw run` has, as what nccl-tests' command line has instead."""

import re

WORDS: tuple[tuple[str, str], ...] = (
    (r"-n counts ranks; iterations are --iters", "give fewer with -g and -t"),
    (r"\B-n (\d+): more than", r"-t times -g is \1: more than"),
    (r"start it as `busbw run \.\.\. -n (\d+)`", r"give -g \1"),
    (r"\(busbw run \.\.\. -n (\d+)\)", r"(-g \1, without a launcher)"),
    (r"start it without mpirun: busbw run \.\.\. --engine sim -n (\d+)", r"start it without mpirun, with -g \1"),
    (r"busbw run \.\.\. --dry-run prints its command: run that by hand", "start it by hand: mpirun -n 2 PROGRAM -b 8 -e 8"),
    (r"run the command that --dry-run prints by hand", "start it by hand: mpirun -n 2 PROGRAM -b 8 -e 8"),
    (r"or name more --hosts", "or start it on more hosts with mpirun or srun"),
    (r"--engine: (?=there)", "BUSBW_ENGINE: "),
    (r"--engine (?=\w+ cannot run here)", "BUSBW_ENGINE="),
    (r"--engine (\w+)", r"BUSBW_ENGINE=\1"),
    (r"--engine\b", "BUSBW_ENGINE"),
    (r"--limit (\d+)", r"-T \1"),
    (r"--json\b", "-J"),
)


def in_compat(text: str) -> str:
    """The message or hint for somebody who typed nccl-tests' options."""
    for pattern, words in WORDS:
        text = re.sub(pattern, words, text)
    return text
