"""The variables that sbatch sets for the commands of its script, by the #SBATCH lines.

srun takes its options from them, and Open MPI's daemons start through Slurm.
"""

import itertools
import re
import shlex
from collections.abc import Iterator

from busbw.check.command.line import (
    JOB_GPUS_PER_NODE,
    JOB_ID,
    JOB_NODES,
    JOB_TASKS,
    JOB_TASKS_PER_NODE,
    LauncherOption,
)
from busbw.check.command.parse_line import parse

_VARIABLES = {  # by option
    "N": JOB_NODES,
    "nodes": JOB_NODES,
    "n": JOB_TASKS,
    "ntasks": JOB_TASKS,
    "ntasks-per-node": JOB_TASKS_PER_NODE,
    "gpus-per-node": JOB_GPUS_PER_NODE,
    "gres": JOB_GPUS_PER_NODE,
}
_DIRECTIVE = re.compile(r"#SBATCH\s+(.*)")
# 8, gpu:8, h100:8, gpu:h100:8, and of --gres also other resources
_COUNT = re.compile(r"(?:\w+:)*(\d{1,6})", re.ASCII)


def job_variables(text: str) -> dict[str, str]:
    """The variables of a script's job; empty for a script without #SBATCH lines.

    Values that are no numbers are left out, as `--nodes=2-4` is. The id has no value yet.
    """
    options = list(_directives(text))
    if not options:
        return {}
    job = {JOB_ID: ""}
    for option in options if not _has_components(text) else ():
        variable, number = _VARIABLES.get(option.name), _number(option)
        if variable and number:
            job[variable] = number
    return job


def sbatch_wrap(words: list[str]) -> str:
    """The commands that `sbatch --wrap` takes in place of a script; '' for other commands."""
    if "sbatch" not in words:
        return ""
    options = words[words.index("sbatch") + 1 :]
    wraps = [value for word, value in itertools.pairwise(options) if word == "--wrap"]
    wraps += [word.partition("=")[2] for word in options if word.startswith("--wrap=")]
    return wraps[-1] if wraps else ""


def _number(option: LauncherOption) -> str:
    """The number in an option's value; '' for other text, and for other resources than GPUs."""
    value = option.values[0] if option.values else ""
    count = _COUNT.fullmatch(value)
    is_other = option.name == "gres" and not value.startswith("gpu:")
    return count[1] if count and not is_other else ""


def _directives(text: str) -> Iterator[LauncherOption]:
    """The options of the #SBATCH lines; as for sbatch, they end at the first command."""
    for line in text.splitlines():
        directive = _DIRECTIVE.match(line)
        if directive:
            try:
                words = shlex.split(directive[1], comments=True)
            except ValueError:  # sbatch refuses it
                continue
            yield from parse(["srun", *words]).options
        elif line.strip() and not line.startswith("#"):
            return


def _has_components(text: str) -> bool:
    """Whether it is a heterogeneous job, whose parts have options of their own."""
    return re.search(r"^#SBATCH\s+(?:hetjob|packjob)", text, re.MULTILINE) is not None
