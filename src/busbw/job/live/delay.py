"""A delay of a job, what may explain it, and a cause."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from busbw.core.pattern import US
from busbw.job.live.rank_use import RankEvidence
from busbw.job.live.types import JobLook, LiveVerdict
from busbw.ui.number_formats import time_text

PARTLY, MAINLY, MORE = 0.25, 0.5, 1.1  # of a delay
GRADIENTS = "gradients"  # a part of a step: what the rank that waits least waits for them


@dataclass(frozen=True, slots=True)
class Cause:
    """`kind` is a word; `wrong_if` is what would prove the cause wrong.

    `where` is the part of the network with the cause, with the ranks of its host, if they are told.
    """

    kind: str
    why: str
    next: str = ""
    wrong_if: str = ""
    where: str = ""
    ranks: Sequence[int] = ()

    def of(self, found: LiveVerdict) -> LiveVerdict:
        """The verdict with this cause."""
        return replace(
            found,
            message=f"{found.message}; slow: {self.where}" if self.where else found.message,
            suspects=self.ranks or found.suspects,
            cause=self.kind,
            why=self.why,
            next=self.next or found.next,
            wrong_if=self.wrong_if,
        )


@dataclass(frozen=True, slots=True)
class Delay:
    """A delay in microseconds of a step of `step_us`: of a late `rank`, or of all ranks (None).

    `more` is how much more of each part of a step the rank has than the others, or all have than
    before, as each rank `grew`; `late` are all ranks that are.
    """

    look: JobLook
    us: float
    step_us: float
    more: Mapping[str, float]
    own: RankEvidence = field(default_factory=RankEvidence)
    rank: int | None = None
    late: Sequence[int] = ()
    grew: Mapping[int, Mapping[str, float]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return "all ranks" if self.rank is None else f"rank {self.rank}"

    @property
    def compared(self) -> str:
        return "before" if self.rank is None else "the other ranks"

    @property
    def pid(self) -> int:
        """The process of the late rank, or of the first."""
        return self.look.ranks[min(self.look.ranks) if self.rank is None else self.rank].pid

    def part_us(self, *parts: str) -> float:
        return sum(self.more.get(part, 0.0) for part in parts)

    def has(self, *parts: str) -> bool:
        """Whether these parts of a step explain it."""
        return self.us > 0 and self.part_us(*parts) >= MAINLY * self.us

    def figure(self, *parts: str) -> str:
        """`9.4 ms of the 10.2 ms`, or `10.2 ms, all of the delay`."""
        more_us = max(0.0, self.part_us(*parts))
        if more_us > MORE * self.us:
            return f"{time_text(US * more_us)}, more than the delay of {time_text(US * self.us)}"
        if more_us >= self.us:
            return f"{time_text(US * self.us)}, all of the delay"
        return f"{time_text(US * more_us)} of the {time_text(US * self.us)}"

    def same(self, when: str) -> str:
        """What would prove a cause wrong."""
        return f"{self.name} {'are' if self.rank is None else 'is'} as slow {when}"
