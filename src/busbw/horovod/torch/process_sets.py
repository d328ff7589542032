"""Process sets: subsets of ranks, for the `process_set` argument of operations."""

from collections.abc import Iterable, Sequence

from busbw.horovod.torch.context import current
from busbw.horovod.torch.errors import Refused


class ProcessSet:
    """Ranks that run operations together.

    Register it with `init(process_sets=[...])` or `add_process_set`.
    """

    process_set_id: int | None = None
    ranks: list[int] | None = None

    def __init__(self, ranks_or_comm: Sequence[int]) -> None:
        """`ranks_or_comm`: ranks, in any order.

        Raises:
            Refused: no ranks.
        """
        if not isinstance(ranks_or_comm, Iterable) or any(
            not isinstance(rank, int) for rank in ranks_or_comm
        ):
            raise Refused(
                f"a process set has a list of ranks, not {ranks_or_comm!r}",
                "for example hvd.ProcessSet([0, 1])",
            )
        self.ranks = sorted(ranks_or_comm)

    def included(self) -> bool:
        """Whether this process is in the set."""
        return current().info.rank in self._ranks()

    def size(self) -> int:
        """The number of ranks in the set."""
        current()
        return len(self._ranks())

    def rank(self) -> int:
        """This process's index in the set.

        Raises:
            Refused: this process is not in the set.
        """
        rank, ranks = current().info.rank, self._ranks()
        if rank not in ranks:
            raise Refused(
                f"rank {rank} is not one of the process set's ranks {ranks}",
                "check included() first",
            )
        return ranks.index(rank)

    def invalidate(self) -> None:
        """Mark the set as removed. It can be added again."""
        self.process_set_id = None

    def number(self) -> int:
        """The number of the set.

        Raises:
            Refused: it is not registered.
        """
        if self.process_set_id is None:
            raise Refused(
                f"{self} is not registered",
                "give it to hvd.init(process_sets=[...]) or hvd.add_process_set",
            )
        return self.process_set_id

    def _ranks(self) -> list[int]:
        self.number()
        assert self.ranks is not None
        return self.ranks

    def __str__(self) -> str:
        """For errors."""
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


global_process_set = ProcessSet([])
global_process_set.process_set_id = 0
registered: list[ProcessSet] = []  # those that `shutdown` unregisters
