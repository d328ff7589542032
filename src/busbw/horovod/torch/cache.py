"""Requests that all ranks know from before: a rank says that it is ready for one by a single bit."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from busbw.horovod.torch.requests import Key, Kind, Request, Response

_KINDS = (Kind.ALLREDUCE, Kind.ALLGATHER, Kind.BROADCAST, Kind.ALLTOALL, Kind.REDUCESCATTER, Kind.BARRIER)
# Names that are made up for one call and never come again.
_ONCE = ".noname."


class Cache:
    """Answers by slot. Every rank puts, uses and drops the same ones in the same order, so slots mean the same everywhere."""

    def __init__(self, capacity: int, rank: int) -> None:
        self._capacity, self._rank = capacity, rank
        self._known: OrderedDict[Key, tuple[int, Response]] = OrderedDict()  # the least recently used first
        self._by_slot: dict[int, Key] = {}
        self.foreign = 0  # bits of operations of sets that this rank is not in: it is always ready for them

    @property
    def slots(self) -> int:
        """Bits of a rank's word."""
        return max(self._by_slot, default=-1) + 1

    def slot(self, request: Request) -> int | None:
        """The slot of the very same request of this rank, where there is one."""
        found = self._known.get(request.key)
        return found[0] if found and found[1].requests.get(self._rank) == request else None

    def take(self, bits: int) -> Iterator[Response]:
        """Answers of these slots, in the order of slots."""
        for slot in range(self.slots):
            if bits >> slot & 1:
                key = self._by_slot[slot]
                self._known.move_to_end(key)
                yield self._known[key][1]

    def put(self, answer: Response, members: Sequence[int]) -> None:
        """Know an answer from now on, if it may come again."""
        request = answer.request
        whole = set(answer.requests) == set(members)
        if answer.error or not whole or request.kind not in _KINDS or _ONCE in request.name or not self._capacity:
            return
        if answer.key in self._known:
            slot = self._known[answer.key][0]
        elif len(self._known) < self._capacity:
            slot = next(slot for slot in range(self._capacity) if slot not in self._by_slot)
        else:
            oldest, (slot, _) = self._known.popitem(last=False)
            assert self._by_slot[slot] == oldest
        self._known[answer.key] = (slot, answer)
        self._known.move_to_end(answer.key)
        self._by_slot[slot] = answer.key
        bit = 1 << slot
        self.foreign = self.foreign & ~bit if self._rank in members else self.foreign | bit

    def drop_set(self, set_id: int) -> None:
        """Forget a process set's."""
        for key in [key for key in self._known if key[0] == set_id]:
            slot, _ = self._known.pop(key)
            del self._by_slot[slot]
            self.foreign &= ~(1 << slot)
