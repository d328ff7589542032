"""What methods cost in loss, as recorded on a small language model (recorded_losses.csv)."""

import dataclasses
from functools import cache

import msgspec

from busbw.core.errors import UsageError
from busbw.core.table_file import rows
from busbw.stats.rounds import Interval
from busbw_accel.settings import BACKEND
from busbw_accel.train.methods import Method, parse

FILE = "train/recorded_losses.csv"
RECORD = "benchmarks/convergence_text_202611/README.md"
NOTE = (
    "loss: recorded, not measured here: that of a small language model after 600 steps, above plain"
    f" DDP's; - if there is no record ({RECORD})"
)


class RecordedLoss(msgspec.Struct, frozen=True):
    """The loss of a method above that of plain DDP, as a share: the mean over seeds, and half of
    its 95 % interval.
    """

    method: str
    loss: float
    half_width: float

    @property
    def interval(self) -> Interval:
        return Interval(self.loss - self.half_width, self.loss + self.half_width)


def recorded_loss(name: str) -> RecordedLoss | None:
    """The record of a method by its name; None without one.

    Where data is staged does not change it: that of `int8+host` is that of `int8`.
    """
    try:
        return _by_way().get(_way(parse(name)))
    except UsageError:  # a method of another version, in a stored plan
        return None


@cache
def _by_way() -> dict[Method, RecordedLoss]:
    table = rows(FILE, RecordedLoss, package="busbw_accel")
    return {_way(parse(row.method)): row for row in table}


def _way(method: Method) -> Method:
    """What determines the loss of a method."""
    settings = method.settings
    if settings is not None:
        settings = dataclasses.replace(settings, staging=BACKEND)
    return dataclasses.replace(method, name="", settings=settings)
