"""From Flight Recorder dumps of a job that hangs: the calls that have not ended. It compares the
sends of each rank with the receives of the other; pending_collective.py compares collectives.

NCCL matches sends and receives in the order in which each of the two ranks calls them. A small
send may end before it is received.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from busbw.core.pattern import RECV, SEND, key
from busbw.pattern import merge
from busbw.pattern.collector import Collector
from busbw.pattern.pending_collective import Outstanding, named_group, of_dumps
from busbw.pattern.readers import json_recovery
from busbw.pattern.readers.execution_trace import elements
from busbw.pattern.readers.flight_recorder import (
    ANY_DEFAULT,
    NAME,
    group_of,
    groups_of,
    has_ended,
    members,
    read_dump,
)
from busbw.pattern.registry import sources

Dump = tuple[str, int, dict[str, Any]]  # its name and rank
_RanksOf = Callable[[str], list[int]]  # those of the job in a process group


def outstanding(files: Sequence[str]) -> tuple[list[Outstanding], list[str]]:
    """The first collective of each process group that ranks called differently or that has not
    ended, then the first send or receive of each two ranks, both with the oldest first; and notes
    on what could not be read.

    The number of a rank is in the name of its file. UsageError if a file cannot be opened.
    """
    collector = Collector("flight recorder")
    sends = _Sends(collector)
    found = of_dumps(sends.of_dumps(_dumps(files, collector)), collector)
    pairs = filter(None, map(sends.first, sends.pairs))
    found += sorted(pairs, key=lambda call: call.since_ns)
    return found, collector.header.notes


def _dumps(files: Sequence[str], collector: Collector) -> Iterator[Dump]:
    for source in sources(files):
        with source.stream:
            dump = read_dump(source, collector) or {}
        yield source.name, source.number if source.rank is None else source.rank, dump


@dataclass(slots=True)
class _SendOrReceive:
    """A send or receive of a rank."""

    rank: int
    text: str  # `send to rank 1`
    size: str  # `4 Float`
    size_bytes: int  # 0 if unknown
    since_ns: int
    has_ended: bool


@dataclass(slots=True)
class _SendingPair:
    """What two ranks of a group sent in one direction, and received."""

    group: str
    sender: int
    receiver: int
    sent: list[_SendOrReceive] = field(default_factory=list)
    received: list[_SendOrReceive] = field(default_factory=list)


@dataclass(slots=True)
class _Sends:
    """The sends and receives of all ranks, whose numbers are those of the job."""

    collector: Collector
    pairs: dict[tuple[str, int, int], _SendingPair] = field(default_factory=dict)
    doing: dict[int, str] = field(default_factory=dict)  # by rank its first open call, or its last
    waiting: set[int] = field(default_factory=set)  # ranks with an open call
    partial: dict[int, bool] = field(default_factory=dict)  # whether a dump lacks the first calls

    def of_dumps(self, dumps: Iterator[Dump]) -> Iterator[Dump]:
        """The same dumps, of which the sends and receives are kept."""
        for name, rank, dump in dumps:
            if dump:
                self._add(name, rank, dump)
            yield name, rank, dump

    def _add(self, name: str, rank: int, dump: dict[str, Any]) -> None:
        entries, configured = dump.get("entries", []), groups_of(dump)
        ranks_of = cache(lambda group: members(configured, group))
        self.partial[rank] = bool(
            entries and isinstance(entries[0], dict) and entries[0].get("record_id")
        )
        calls: list[_SendOrReceive] = []
        batches: dict[Any, list[_SendOrReceive]] = defaultdict(list)
        for at, entry in enumerate(entries):
            if not isinstance(entry, dict):
                continue  # pending_collective counts it
            try:
                batch = group_of(entry), entry.get("collective_seq_id"), entry.get("p2p_seq_id")
                if call := self._take(rank, entry, ranks_of):
                    calls.append(call)
                    batches[batch].append(call)
                elif key(str(entry.get("profiling_name")).rpartition(":")[2]) == "coalesced":
                    for call in batches.pop(batch, ()):  # which have no state of their own
                        call.has_ended = has_ended(entry)
            except json_recovery.UNEXPECTED as error:
                self.collector.add_problem(f"{name}: entry {at}: {type(error).__name__}: {error}")
        if calls:
            self.doing[rank] = next(iter(_open(calls)), calls[-1]).text
        if _open(calls):
            self.waiting.add(rank)

    def _take(self, rank: int, entry: dict[str, Any], ranks_of: _RanksOf) -> _SendOrReceive | None:
        """Keep the send or receive of an entry; None for another call."""
        match = NAME.fullmatch(str(entry.get("profiling_name")))
        function = merge.function(match[2]) if match else None
        if match is None or function not in merge.POINT_TO_POINT:
            return None
        count, dtypes = elements(entry.get("input_sizes") or []), entry.get("input_dtypes")
        dtype = dtypes[0] if isinstance(dtypes, list) and dtypes else ""
        peer = _peer(match[4], entry, ranks_of)
        whom = "?" if peer is None else str(peer)
        call = _SendOrReceive(
            rank,
            f"{SEND} to rank {whom}" if function == SEND else f"{RECV} from rank {whom}",
            f"{count} {dtype}".strip(),
            count * merge.element(dtype)[1],
            int(entry.get("time_created_ns") or 0),
            has_ended(entry),
        )
        group = named_group(*group_of(entry))
        if peer is not None:
            ends = (rank, peer) if function == SEND else (peer, rank)
            pair = self.pairs.setdefault((group, *ends), _SendingPair(group, *ends))
            (pair.sent if function == SEND else pair.received).append(call)
        elif not call.has_ended:
            self.collector.add_note(f"not compared: rank {rank}: {call.text} of group {group}")
        return call

    def first(self, ends: tuple[str, int, int]) -> Outstanding | None:
        """The first call of two ranks that they made differently or that waits; None if none
        waits.
        """
        pair = self.pairs[ends]
        partial = any(self.partial.get(rank, False) for rank in ends[1:])
        sent, received = pair.sent, pair.received
        if partial:  # then the open ones alone are known to be alike
            sent, received = _open(sent), _open(received)
        both = min(len(sent), len(received))
        for number, calls in enumerate(zip(sent, received, strict=False), 1):
            if _open(calls):
                return _of_both(pair, 0 if partial else number, calls)
        lone = _open([*sent[both:], *received[both:]])
        if not lone:
            return None
        return self._of_one(pair, 0 if partial else both + 1, lone[0])

    def _of_one(self, pair: _SendingPair, number: int, call: _SendOrReceive) -> Outstanding:
        """A call that the other rank has not made; it may have, if its dump lacks calls that ended
        and it waits itself.
        """
        other, missing = pair.sender, f"{SEND} to rank {pair.receiver}"
        if call.rank == pair.sender:
            other, missing = pair.receiver, f"{RECV} from rank {pair.sender}"
        is_silent = other not in self.partial
        is_known = not is_silent and (number > 0 or other not in self.waiting)
        return Outstanding(
            group=pair.group,
            seq=number,
            function=missing if is_known else call.text,
            since_ns=call.since_ns,
            waiting=[call.rank],
            absent={other: self.doing.get(other, "none")} if is_known else {},
            silent=[other] if is_silent else [],
        )


def _of_both(pair: _SendingPair, number: int, calls: Sequence[_SendOrReceive]) -> Outstanding:
    """A send and its receive, which do not end."""
    sizes = {call.size_bytes for call in calls} - {0}
    return Outstanding(
        group=pair.group,
        seq=number,
        function=f"{SEND} from rank {pair.sender} to rank {pair.receiver}",
        since_ns=min(call.since_ns for call in calls),
        waiting=sorted(call.rank for call in _open(calls)),
        different={call.rank: f"{call.text}, {call.size}" for call in calls if len(sizes) > 1},
    )


def _open(calls: Sequence[_SendOrReceive]) -> list[_SendOrReceive]:
    return [call for call in calls if not call.has_ended]


def _peer(peer: str | None, entry: dict[str, Any], ranks_of: _RanksOf) -> int | None:
    """The rank of the job that has this number in the group of an entry; None if unknown."""
    if peer is None or not peer.isdecimal():
        return None  # a receive from any rank
    group, description = group_of(entry)
    ranks = ranks_of(group)
    if not ranks and description == ANY_DEFAULT:
        return int(peer)
    return ranks[int(peer)] if int(peer) < len(ranks) else None
