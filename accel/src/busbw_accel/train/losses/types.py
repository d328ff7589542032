"""What a rank is asked for, and what it writes: a file of JSON lines."""

from pathlib import Path

import msgspec

VARIABLE = "BUSBW_LOSSES"  # has a RunRequest
START = "busbw_accel.train.losses.rank:start"
SEED_STEP = 1009  # between rounds: scripts add the rank to a seed


class RunRequest(msgspec.Struct, frozen=True):
    """One run of the script: its method, and how many steps it makes."""

    folder: str
    method: str
    steps: int
    round: int  # from 0; the script's own seeds are those of round 0
    first_s: float  # when the first run began, in seconds since 1970
    begun_s: float  # when this one began

    @property
    def seed_shift(self) -> int:
        return SEED_STEP * self.round

    def file(self, rank: int) -> Path:
        return Path(self.folder, f"rank_{rank}.jsonl")


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the file: what one of these fields has."""

    world: int = 0  # ranks of the job
    step: int = 0  # from 1
    loss: float | None = None  # of the step; None if it is not finite
    shape: tuple[int, ...] | None = None  # of what backward was called on: no loss
    hook: bool = False  # the script has registered a communication hook
    loaded: str = ""  # a file of an earlier run that the script has loaded
