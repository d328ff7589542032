"""Which call of a communicator the ranks wait for, from the files of the profiler plugin.

A rank that has made fewer calls than another one of its communicator keeps it waiting, once this
one stands still. That all wait in a call is known only where calls are timed.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from busbw.core.pattern import RECV, SEND
from busbw.job.live.plugin_file import PluginFile
from busbw.measure.profiler_calls import ProfiledCall
from busbw.pattern import usual_call
from busbw.pattern.pending_collective import Outstanding
from busbw.pattern.readers.profiler import CommOfRank

STILL_S = 2.0  # without a record: then calls are compared


class CommRank(NamedTuple):
    """A rank in one of its communicators, which has this number in its file."""

    rank: int
    file: PluginFile
    number: int
    comm: CommOfRank
    made: int  # collectives that it called
    still_s: float

    def is_behind(self, others: Sequence["CommRank"]) -> bool:
        """Whether another rank has made a call of the communicator that this one has not."""
        return any(one.comm.key == self.comm.key and one.made > self.made for one in others)

    def call(self, number: int) -> ProfiledCall | None:
        return self.file.calls.get((self.number, number))


class CallOfComm(NamedTuple):
    """A call, and how its ranks are told to be in it."""

    outstanding: Outstanding
    text: str


def comm_name(comm: CommOfRank) -> str:
    """Its name, else NCCL's number, as its log and RAS have it."""
    identity, again = comm.key
    name = comm.name[:20] or f"{identity:#x}"
    return f"{name}, made again {again} times" if again else name


def described(own: Sequence[CommRank]) -> str:
    """The last collective of each communicator of a rank, of a few."""
    texts = [f"{one.made} of comm {comm_name(one.comm)}" for one in own if one.made]
    return ", ".join(texts[:4])


def pending(comm_ranks: Sequence[CommRank]) -> list[CallOfComm]:
    """The first call of each communicator in which its ranks differ or which they wait in."""
    of_comm: dict[Hashable, list[CommRank]] = defaultdict(list)
    for one in comm_ranks:
        of_comm[one.comm.key].append(one)
    found = []
    for members in of_comm.values():
        if any(one.file.lost for one in members):
            continue
        call = _different(members) or _behind(members) or _unended(members) or _unsent(members)
        if call:
            found.append(call)
    return found


def _different(members: Sequence[CommRank]) -> CallOfComm | None:
    """The first call that ranks made differently, of those that stand still."""
    still = [one for one in members if one.still_s >= STILL_S]
    if len(still) < 2:
        return None
    made: dict[int, dict[int, str]] = defaultdict(dict)
    for one in still:
        for (comm, number), call in one.file.calls.items():
            if comm == one.number:
                made[number][one.rank] = _text(call)
    different = [number for number, texts in made.items() if len(set(texts.values())) > 1]
    if not different:
        return None
    first = min(different)
    texts = made[first]
    found = _outstanding(members, first, sorted(texts), different=texts)
    earlier = {number: next(iter(of.values())) for number, of in made.items() if number < first}
    usual, following = usual_call.usual(usual_call.before(first, earlier))
    found.outstanding.usual = usual
    found.outstanding.left_out = usual_call.left_out(texts, usual, following)
    found.outstanding.resized = usual_call.resized(texts, usual)
    return found


def _text(call: ProfiledCall) -> str:
    root = "" if call.root is None else f" from {call.root}"
    return f"{call.function} of {call.count} {call.dtype or 'uint8'}{root}"


def _behind(members: Sequence[CommRank]) -> CallOfComm | None:
    """The first call that some ranks have not made, if those that have stand still."""
    first = min(one.made for one in members) + 1
    waiting = [one for one in members if one.made >= first]
    if not waiting or any(one.still_s < STILL_S for one in waiting):
        return None
    absent = {one.rank: f"number {one.made}" for one in members if one.made < first}
    return _outstanding(members, first, [one.rank for one in waiting], absent=absent)


def _unended(members: Sequence[CommRank]) -> CallOfComm | None:
    """The first call that has not ended on some ranks, if all have made it and stand still."""
    if len(members) < members[0].comm.ranks or any(one.still_s < STILL_S for one in members):
        return None
    waiting: dict[int, list[int]] = defaultdict(list)
    for one in members:
        done = one.file.done(one.number)
        if done is not None and done < one.made:
            waiting[done + 1].append(one.rank)
    if not waiting:
        return None
    first = min(waiting)
    return _outstanding(members, first, sorted(waiting[first]))


def _unsent(members: Sequence[CommRank]) -> CallOfComm | None:
    """A receive for which the other rank has not sent, if the receiver stands still."""
    of_rank = {one.comm.rank: one for one in members}
    for one in members:
        for (comm, function, peer), received in one.file.passed().items():
            other = of_rank.get(peer)
            if (comm, function) != (one.number, RECV) or other is None:
                continue
            sent = other.file.passed()[other.number, SEND, one.comm.rank]
            if sent < received and one.still_s >= STILL_S:
                call = _outstanding(members, sent + 1, [one.rank], absent={other.rank: str(sent)})
                call.outstanding.function = f"{SEND} to rank {one.rank}"
                return call._replace(text=f"{RECV} {sent + 1} from rank {other.rank}")
    return None


def _outstanding(
    members: Sequence[CommRank],
    number: int,
    waiting: Sequence[int],
    absent: dict[int, str] | None = None,
    different: dict[int, str] | None = None,
) -> CallOfComm:
    calls = [(one, one.call(number)) for one in members if one.rank in waiting]
    one, call = next(((one, call) for one, call in calls if call), (members[0], None))
    function = call.function if call else "the call"
    name = comm_name(members[0].comm)
    since_us = one.file.known.time_us(call.at_ns) if call and one.file.known else 0.0
    found = Outstanding(
        group=name,
        noun="comm",
        seq=number,
        function=function,
        since_ns=int(since_us * 1000),
        waiting=sorted(waiting),
        absent=absent or {},
        different=dict(sorted((different or {}).items())),
    )
    return CallOfComm(found, f"{function} number {number} of comm {name}")
