"""The steps of a training, from the files that the recorder leaves in the folder of a capture."""

from pathlib import Path
from statistics import median

import msgspec

from busbw.core.pattern import TrainingSteps

SUFFIX = ".ddp"
VERSION = 1


class RankSteps(msgspec.Struct):
    """The file of one rank, `rank_N.ddp`; the fields are those of TrainingSteps."""

    version: int
    rank: int
    world: int
    host: str
    steps_us: list[float]
    waits_us: list[float]
    bucket_mb: float
    hook: str
    shapes: list[list[list[int]]]


def read(folder: Path) -> tuple[TrainingSteps | None, list[str]]:
    """The steps of all ranks, None if no rank recorded any; and notes on files that are broken."""
    ranks, notes = [], []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            steps = msgspec.json.decode(path.read_bytes(), type=RankSteps)
        except (OSError, ValueError) as error:
            notes.append(f"{path.name}: {error}")
            continue
        if steps.version == VERSION:
            ranks.append(steps)
    ranks.sort(key=lambda steps: steps.rank)
    return (_joined(ranks) if ranks else None), notes


def _joined(ranks: list[RankSteps]) -> TrainingSteps:
    """The steps of a job. A step took as long as on the median rank.

    The rank that waited least was the last to end backward, so that its wait is that for the
    network alone.
    """
    first = ranks[0]
    return TrainingSteps(
        steps_us=[median(times) for times in zip(*(rank.steps_us for rank in ranks), strict=False)],
        waits_us=[min(times) for times in zip(*(rank.waits_us for rank in ranks), strict=False)],
        bucket_mb=first.bucket_mb,
        hook=first.hook,
        shapes=first.shapes,
        hosts=[rank.host for rank in ranks],
    )
