"""Errors of the nccl-tests commands: what `busbw run` calls an option, in nccl-tests' own words.

An error's texts name the options of `busbw run`, and its `options` say which of these rows apply.
"""

import re
from collections.abc import Collection

from busbw.core.errors import BusbwError

BY_HAND = "start it by hand: mpirun -n 2 PROGRAM -b 8 -e 8"

# How texts that name an option of `busbw run` change: patterns and replacements by the id that the
# option has in an error's `options`.
REWORDINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "dry_run": ((r"run the command that `busbw run \.\.\. --dry-run` prints by hand", BY_HAND),),
    "engine": ((r"--engine (?=\w)", "BUSBW_ENGINE="), (r"--engine\b", "BUSBW_ENGINE")),
    "hosts": ((r"name more --hosts", "start it on more hosts with mpirun or srun"),),
    "json": ((r"--json\b", "-J"),),
    "limit": ((r"--limit\b", "-T"),),
    # They have no such option.
    "launch_limit": (
        (r"give more time: --launch-limit \d+, or ", ""),
        (r", or more time: --launch-limit \d+", ""),
    ),
    "ranks": (
        (r"--ranks \d+ or fewer; iterations are --iters", "give fewer with -g and -t"),
        (r"--ranks (\d+)", r"-t times -g is \1"),
    ),
    "start": ((r"start it as `busbw run \.\.\. -np (\d+)`", r"give -g \1"),),
    "start_alone": ((r"busbw run \.\.\. -np (\d+)", r"-g \1, without a launcher"),),
    "start_sim": (
        (
            r"start it without mpirun: busbw run \.\.\. --engine sim -np (\d+)",
            r"start it without mpirun, with -g \1",
        ),
    ),
}


def reword(text: str, options: Collection[str]) -> str:
    """The text of an error with these options as the nccl-tests commands name them."""
    for option in options:
        for pattern, replacement in REWORDINGS.get(option, ()):
            text = re.sub(pattern, replacement, text)
    return text


def text_of(error: BusbwError) -> str:
    """An error as these commands print it on stderr."""
    return reword(error.render(), error.options)
