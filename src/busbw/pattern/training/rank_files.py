"""The steps of a training, from the files that the recorder leaves in the folder of a capture."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from busbw.core.lateness import GRADIENTS, Lateness
from busbw.core.pattern import TrainingSteps
from busbw.core.sizes import counted
from busbw.pattern.lateness.judge import JobRanks, lateness
from busbw.pattern.lateness.waits import StepWaits
from busbw.pattern.readers import json_recovery

SUFFIX, RECORDER_SUFFIX = ".ddp", ".fr"
VERSION = 1
LATE_UNKNOWN = (
    "who was late is not known of this record: its calls have no times. capture --timed records"
    " those of NCCL's calls; busbw watch job tells what ranks do while they run"
)


class RankSteps(TrainingSteps, frozen=True, kw_only=True):
    """The file of one rank, `rank_N.ddp`: its own steps, and who it is. `call_waits_us` is how long
    the rank was blocked in calls other than DDP's, in the steps `wait_steps`.
    """

    version: int
    rank: int
    world: int
    host: str
    call_waits_us: list[float] = msgspec.field(default_factory=list)

    def blocked_us(self) -> dict[int, float]:
        """How long it waited for gradients and in other calls, by step."""
        in_calls = self.call_waits_us or [0.0] * len(self.waits_us)
        timed = zip(self.waits().items(), in_calls, strict=False)
        return {step: wait_us + call_us for (step, wait_us), call_us in timed}


class Recorded(NamedTuple):
    """The steps of all ranks, None if no rank recorded any; how many ranks the training has, 0 if
    that is unknown; notes on what is missing; and which ranks were late.
    """

    steps: TrainingSteps | None
    world: int
    notes: list[str]
    lateness: Lateness | None = None


def read(folder: Path) -> Recorded:
    """What the ranks of a capture's folder recorded."""
    ranks, notes = [], []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            steps = msgspec.json.decode(path.read_bytes(), type=RankSteps)
        except (OSError, *json_recovery.BROKEN) as error:
            notes.append(f"{path.name}: {error}")
            continue
        if steps.version == VERSION:
            ranks.append(steps)
        else:
            notes.append(f"{path.name}: version {steps.version}; this busbw reads {VERSION}")
    if not ranks:
        return Recorded(None, 0, notes)
    ranks.sort(key=lambda steps: steps.rank)
    if len(ranks) < ranks[0].world:
        notes.append(
            f"{len(ranks)} of {ranks[0].world} ranks recorded their steps: the wait for gradients"
            " may include that for the others"
        )
    joined = _joined(ranks)
    late = _lateness(joined, ranks)
    timed = sum(at < len(joined.steps_us) for at in joined.waits())
    if 0 < timed < len(joined.steps_us):
        first = timed - len(joined.counted())
        notes.append(
            f"DDP timed {timed} of {counted(len(joined.steps_us), 'step')}: step and wait are the"
            " medians over these" + (f" without the first {first}" if first else "")
        )
    return Recorded(joined, ranks[0].world, notes, late)


def is_capture(folder: Path) -> bool:
    """Whether the recorder has left files of ranks there."""
    return any(folder.glob(f"*{RECORDER_SUFFIX}"))


def _lateness(joined: TrainingSteps, ranks: Sequence[RankSteps]) -> Lateness | None:
    """Which ranks were late, by how long each waited for gradients."""
    if len(ranks) < 2:
        return None
    steps = [at for at in joined.waits() if at < len(joined.steps_us)]
    waits = {rank.rank: rank.blocked_us() for rank in ranks}
    times = StepWaits(
        [joined.steps_us[at] for at in steps],
        {rank: [own[at] for at in steps] for rank, own in waits.items()},
        numbers=steps,
    )
    hosts = {rank.rank: rank.host for rank in ranks}
    return lateness(times, JobRanks(ranks[0].world, hosts), GRADIENTS, with_phases=True)


def _joined(ranks: list[RankSteps]) -> TrainingSteps:
    """The steps of a job. A step took as long as on the median rank.

    The rank that waited least was the last to end backward, so that its wait is that for the
    network alone: of a step that every rank timed.
    """
    first = ranks[0]
    waits = [rank.waits() for rank in ranks]
    timed = sorted(set(waits[0]).intersection(*waits[1:]))
    return TrainingSteps(
        steps_us=[median(times) for times in zip(*(rank.steps_us for rank in ranks), strict=False)],
        waits_us=[min(own[at] for own in waits) for at in timed],
        wait_steps=timed,
        bucket_mb=first.bucket_mb,
        hook=first.hook,
        shapes=first.shapes,
        hosts=[rank.host for rank in ranks],
        parameter_bytes=first.parameter_bytes,
    )
