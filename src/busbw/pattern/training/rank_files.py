"""The steps of a training, from the files that the recorder leaves in the folder of a capture."""

from pathlib import Path
from statistics import median

import msgspec

from busbw.core.pattern import TrainingSteps
from busbw.core.sizes import counted
from busbw.pattern.readers import json_recovery

SUFFIX, RECORDER_SUFFIX = ".ddp", ".fr"
VERSION = 1
NO_DDP = (
    "no model in PyTorch's DistributedDataParallel was trained in its ranks, and only such a model"
    " can be given to busbw_accel.attach"
)


class RankSteps(TrainingSteps, frozen=True, kw_only=True):
    """The file of one rank, `rank_N.ddp`: its own steps, and who it is."""

    version: int
    rank: int
    world: int
    host: str


def read(folder: Path) -> tuple[TrainingSteps | None, int, list[str]]:
    """The steps of all ranks, None if no rank recorded any; how many ranks the training has, 0 if
    that is unknown; and notes on what is missing.
    """
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
        if not notes and any(folder.glob(f"*{RECORDER_SUFFIX}")):
            notes.append(NO_DDP)
        return None, 0, notes
    ranks.sort(key=lambda steps: steps.rank)
    if len(ranks) < ranks[0].world:
        notes.append(
            f"{len(ranks)} of {ranks[0].world} ranks recorded their steps: the wait for gradients"
            " may include that for the others"
        )
    joined = _joined(ranks)
    timed = sum(at < len(joined.steps_us) for at in joined.waits())
    if 0 < timed < len(joined.steps_us):
        first = timed - len(joined.counted())
        notes.append(
            f"DDP timed {timed} of {counted(len(joined.steps_us), 'step')}: step and wait are the"
            " medians over these" + (f" without the first {first}" if first else "")
        )
    return joined, ranks[0].world, notes


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
