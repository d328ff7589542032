"""A cache of earlier requests. A rank announces a cached request with a single bit."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from busbw.horovod.torch.requests import Key, Kind, Request, Response

_KINDS = (
    Kind.ALLREDUCE,
    Kind.ALLGATHER,
    Kind.BROADCAST,
    Kind.ALLTOALL,
    Kind.REDUCESCATTER,
    Kind.BARRIER,
)
# Generated names, which are used only once.
_ONCE = ".noname."


class Cache:
    """Responses by slot.

    All ranks add, use and evict the same ones in the same order, so a slot means the same on each.
    """

    def __init__(self, capacity: int, rank: int) -> None:
        self._capacity, self._rank = capacity, rank
        # the least recently used first
        self._known: OrderedDict[Key, tuple[int, Response]] = OrderedDict()
        self._by_slot: dict[int, Key] = {}
        # bits of operations of sets that this rank is not in: it is always ready for them
        self.foreign = 0

    @property
    def slots(self) -> int:
        """Number of bits that a rank sends."""
        return max(self._by_slot, default=-1) + 1

    def slot(self, request: Request) -> int | None:
        """The slot of an identical request of this rank. None: not cached."""
        found = self._known.get(request.key)
        return found[0] if found and found[1].requests.get(self._rank) == request else None

    def take(self, bits: int) -> Iterator[Response]:
        """The responses in these slots, in slot order."""
        for slot in range(self.slots):
            if bits >> slot & 1:
                key = self._by_slot[slot]
                self._known.move_to_end(key)
                yield self._known[key][1]

    def put(self, answer: Response, members: Sequence[int]) -> None:
        """Cache a response if it may occur again."""
        request = answer.request
        whole = set(answer.requests) == set(members)
        if (
            answer.error
            or not whole
            or request.kind not in _KINDS
            or _ONCE in request.name
            or not self._capacity
        ):
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
        """Remove the entries of a process set."""
        for key in [key for key in self._known if key[0] == set_id]:
            slot, _ = self._known.pop(key)
            del self._by_slot[slot]
            self.foreign &= ~(1 << slot)
