"""A tuning: which algorithm, protocol and number of channels NCCL should use for each size, and
what that gains.

Seconds and bytes.
"""

from collections.abc import Mapping

import msgspec

from busbw.core.finding import Finding
from busbw.core.pattern import PROTOCOLS
from busbw.core.tuning import Choice

SCHEMA = "busbw.tuning/1"
EVERY_PROTOCOL = ("Tree", "Ring")  # the other algorithms have Simple alone
ALGORITHMS_OF = {
    "all_reduce": ("Tree", "Ring", "NVLS", "NVLSTree"),
    "all_gather": ("Ring", "NVLS", "PAT"),
    "reduce_scatter": ("Ring", "NVLS", "PAT"),
}


def pairs(collective: str) -> list[Choice]:
    """What NCCL may run a collective with, before it looks at the hardware: all but CollNet,
    which needs switches that reduce.
    """
    found = []
    for algorithm in ALGORITHMS_OF.get(collective, ("Ring",)):
        found += [
            Choice(algorithm, protocol)
            for protocol in PROTOCOLS
            if algorithm in EVERY_PROTOCOL or protocol == PROTOCOLS[-1]
        ]
    return found


def text_of(variables: Mapping[str, str]) -> str:
    """`NCCL_MIN_NCHANNELS=8 NCCL_SOCKET_NTHREADS=4`."""
    return " ".join(f"{name}={value}" for name, value in variables.items())


class Trial(msgspec.Struct, kw_only=True):
    """The search at one size.

    `choice` had the shortest time of `candidates`, None if that was NCCL's own choice. `own` is
    NCCL's choice by its model, with its number of channels, and `own_s` its median time in the last
    round of the search. The samples were taken in turn after the search had ended; each is of one
    turn: the median over its operations of the longest duration over ranks. `nodes` are the hosts
    of the communicator as NCCL counts them: those that NVLink joins may be one.
    """

    size_bytes: int
    own: Choice
    own_s: float
    candidates: int
    nodes: int
    choice: Choice | None = None
    default_s: list[float] = []
    choice_s: list[float] = []


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """A choice compared with NCCL's: both medians, and the ratio of the times (choice / default)
    with its interval.

    `p` is adjusted for all sizes of the tuning.
    """

    default_s: float
    choice_s: float
    ratio: float
    low: float | None = None
    high: float | None = None
    p: float = 1.0


class Tuned(msgspec.Struct, kw_only=True):
    """One size: NCCL's choice and its time, the best candidate and its gain, and the gain in the
    check with new ranks.

    With variables the gain is that of the check, and without a table NCCL's choice is not known.
    `kept` says whether the table has the choice, `reason` why not. `nodes`: see Trial.
    """

    size_bytes: int
    own: Choice | None
    own_s: float
    candidates: int
    nodes: int = 0
    choice: Choice | None = None
    gain: Gain | None = None
    check: Gain | None = None
    kept: bool = False
    reason: str = ""

    @property
    def expected_s(self) -> float:
        """The time with what was found."""
        return self.gain.choice_s if self.kept and self.gain else self.own_s


class TunedSystem(msgspec.Struct, frozen=True, kw_only=True):
    """What a table is for. `nccl` is NCCL's version number, 0 for the sim engine."""

    device: str
    ranks: int
    hosts: int
    nccl: int
    network: str = ""


class Tuning(msgspec.Struct, tag=SCHEMA, tag_field="schema", kw_only=True):
    """The outcome.

    `dropped` are the candidates that failed, with the reason; `findings` are about the machines
    during the check.
    """

    collective: str
    system: TunedSystem
    sizes: list[Tuned] = []
    variables: dict[str, str] = {}
    dropped: dict[str, str] = {}
    findings: list[Finding] = []
    file: str = ""

    def kept(self) -> list[Tuned]:
        """The sizes for which the table has a rule."""
        return [size for size in self.sizes if size.kept]
