"""A table of an earlier tuning, run against NCCL's choice on this system again."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from busbw.core.errors import UsageError
from busbw.tune import table_file
from busbw.tune.ab_check import Check, check
from busbw.tune.jobs import Jobs
from busbw.tune.types import TunedSystem


def refuse_other(
    file: Path, made_for: TunedSystem, here: TunedSystem, say: Callable[[str], None]
) -> None:
    """UsageError if a table is for another system than this one; says what differs and is
    harmless.
    """
    wrong, harmless = table_file.differences(made_for, here)
    if wrong:
        raise UsageError(
            f"{file} is for another system: {'; '.join(wrong)}",
            "tune here, into another file: busbw tune ... --output FILE",
        )
    for text in harmless:
        say(f"note: {text}")


def check_file(file: Path, jobs: Jobs, rounds: int, say: Callable[[str], None]) -> Iterator[Check]:
    """Each collective of the table, compared with NCCL's choice.

    UsageError for a table of another system.
    """
    name = str(file)
    table = table_file.read(file)
    made_for, variables = table_file.system(table, name), table_file.variables(table, name)
    jobs.judge = lambda here: refuse_other(file, made_for, here, say)
    for spec in table_file.sweeps(table, name, jobs.job.sweep):
        if not any(rule.collective == spec.collective for rule in table.rules) and not variables:
            say(f"note: {file} leaves {spec.collective} to NCCL")
            continue
        jobs.job = msgspec.structs.replace(jobs.job, sweep=spec)
        yield check(jobs, table.text(), variables, rounds)
