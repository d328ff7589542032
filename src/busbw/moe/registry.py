"""The table of backends: the implementations of dispatch and combine that one run can compare."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from busbw.core.backend_names import row_of
from busbw.moe.types import ALLTOALLV, MoeSpec

if TYPE_CHECKING:
    from busbw.moe.exchange import Buffers, RankExchange
    from busbw.moe.plan import RankPlan


class OpenedBackend(Protocol):
    """A backend on this rank."""

    @property
    def version(self) -> str:
        """Of what is called; '' if the engine's versions have it."""

    def reserved_bytes(self, rows: dict[str, int], row_bytes: int) -> int:
        """The memory that it takes beside the buffers, which have so many `rows`."""

    def exchange(
        self, spec: MoeSpec, plan: "RankPlan", rank: int, buffers: "Buffers"
    ) -> "RankExchange":
        """Dispatch and combine of one number of tokens. Collective. RuntimeError if it refuses."""

    def close(self) -> None:
        """Release what it holds. Collective."""


@dataclass(frozen=True, slots=True)
class MoeBackend:
    """One backend. `why_not` takes the hosts of the ranks, and gives why it cannot run on this
    rank, '' if it can.
    """

    name: str
    what: str
    of_gpus: bool
    why_not: Callable[[MoeSpec, Sequence[str]], str]
    open: Callable[[MoeSpec, int], OpenedBackend]


def _open_alltoallv(_spec: MoeSpec, _ranks: int) -> OpenedBackend:
    from busbw.moe.exchange import AllToAllV

    return AllToAllV()


def _why_no_deepep(spec: MoeSpec, hosts: Sequence[str]) -> str:
    from busbw.moe.deepep import why_not

    return why_not(spec, hosts)


def _open_deepep(spec: MoeSpec, ranks: int) -> OpenedBackend:
    from busbw.moe.deepep import DeepEp

    return DeepEp(spec, ranks)


BACKENDS = (
    MoeBackend(
        ALLTOALLV,
        "all_to_all_single of PyTorch, with NCCL on GPUs and Gloo on CPUs",
        False,
        lambda _spec, _hosts: "",
        _open_alltoallv,
    ),
    MoeBackend(
        "deepep",
        "DeepEP's kernels for training and prefill within a host",
        True,
        _why_no_deepep,
        _open_deepep,
    ),
)
BY_NAME = {row.name: row for row in BACKENDS}


def backend(name: str) -> MoeBackend:
    """The row called `name`; UsageError if there is none."""
    return row_of(BY_NAME, name)
