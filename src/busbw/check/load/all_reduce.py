"""An all_reduce over all GPUs of this machine with NCCL, and what follows from it.

The module `all_reduce_run` measures in a process of its own.
"""

from pathlib import Path

import msgspec

from busbw.check.load.measurement import run_measurement
from busbw.core.finding import RunFinding
from busbw.core.settings import OFF
from busbw.reference.place import VARIABLE

CALL = "all_reduce_load"
START_S = 150.0  # at most, for all ranks to join and NCCL to connect them
ENDS_S = 30.0


class AllReduce(msgspec.Struct, frozen=True):
    """The findings on an all_reduce over so many GPUs; `reason` says why there are none."""

    gpus: int = 0
    findings: tuple[RunFinding, ...] = ()
    reason: str = ""


def longest_s(seconds: float) -> float:
    """The longest time in seconds for a sweep that samples for `seconds`."""
    return START_S + 2 * seconds + ENDS_S


def run(seconds: float, own_runs: Path | None = None) -> AllReduce:
    """A sweep over all local GPUs, compared with the runs in `own_runs`, or with published ones."""
    answer = run_measurement(
        "busbw.check.load.all_reduce_run",
        seconds,
        longest_s(seconds),
        AllReduce,
        what="the all_reduce",
        environment={VARIABLE: str(own_runs) if own_runs else OFF[0]},
    )
    return AllReduce(reason=answer) if isinstance(answer, str) else answer
