"""From Flight Recorder dumps of a job that hangs: the pending collectives, which have not ended;
which ranks have not called them; and which called another one.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from busbw.pattern import merge, usual_call
from busbw.pattern.collector import Collector
from busbw.pattern.readers import json_recovery
from busbw.pattern.readers.execution_trace import elements
from busbw.pattern.readers.flight_recorder import (
    group_of,
    groups_of,
    has_ended,
    lists_only_open,
    members,
)

_BACKEND = re.compile(r"^[\w-]+:")
_NO_DESCRIPTIONS = ("", "undefined", "default_pg")
_MAX_FIGURE = 1 << 63  # numbers and times in ns have 64 bits
# The buffers whose elements all ranks of a call must agree about. Of other functions they may have
# unequal parts, or only the root has one.
_SENT, _RECEIVED = ("input_sizes", "input_dtypes"), ("output_sizes", "output_dtypes")
_EQUAL = {
    "all_reduce": _SENT,
    "broadcast": _SENT,
    "reduce": _SENT,
    "reduce_scatter": _SENT,
    "all_gather": _RECEIVED,
}


class _StartedCollective(NamedTuple):
    """A collective that a rank has called; `size` in words, '' where ranks may differ."""

    function: str
    size: str
    since_ns: int
    has_ended: bool
    is_completed: bool  # on the GPU; Gloo's calls end without it, also with an error

    def __str__(self) -> str:
        """`all_reduce of 21 Float`."""
        return f"{self.function} of {self.size}" if self.size else self.function

    def differs(self, other: "_StartedCollective") -> bool:
        """Whether the two cannot be one call of two ranks."""
        functions = [merge.function(call.function) or call.function for call in (self, other)]
        if functions[0] != functions[1]:
            return True
        return bool(self.size and other.size and self.size != other.size)


Calls = dict[int, _StartedCollective]  # by number within their group


class Outstanding(msgspec.Struct, kw_only=True):
    """The first collective of a process group that has not ended, or in which ranks differ.

    It is from Flight Recorder dumps. Some ranks have called it, or ranks made different calls.
    Ranks are those of the job.
    """

    group: str
    noun: str = "group"  # what `group` names
    seq: int
    function: str
    since_ns: int  # Unix time of its first call
    waiting: list[int] = []
    completed: list[int] = []  # those whose GPUs have ended it
    absent: dict[int, str] = {}  # with their last call: `all_reduce number 7`
    silent: list[int] = []  # gave no dump
    different: dict[int, str] = {}  # what each rank called, if that differs
    usual: str = (
        ""  # what all ranks called here before, if the calls before the different ones repeat
    )
    left_out: list[int] = []  # the ranks that called what usually follows that
    resized: list[int] = []  # the ranks alone that called the usual function with another size


def of_dumps(
    dumps: Iterable[tuple[str, int, dict[str, Any]]], collector: Collector
) -> list[Outstanding]:
    """The first collective of each process group that ranks called differently or that has not
    ended on all of them, the oldest first.

    `dumps` have their names and ranks; the collector counts what cannot be read.
    """
    groups: dict[str, dict[int, Calls]] = {}
    configured: dict[str, Any] = {}
    progress = _DumpedProgress()
    for name, rank, dump in dumps:
        configured |= groups_of(dump)
        if dump:
            progress.add(rank, dump)
        for at, entry in enumerate(dump.get("entries", [])):
            try:
                _take(entry, rank, groups)
            except json_recovery.UNEXPECTED as error:
                collector.add_problem(f"{name}: entry {at}: {type(error).__name__}: {error}")
    pending = []
    for group, ranks in groups.items():
        collective = _first(group, ranks, set(members(configured, group)), progress)
        if collective:
            pending.append(collective)
    return sorted(pending, key=lambda collective: collective.since_ns)


def named_group(group: str, description: str) -> str:
    """`41 (TENSOR_MODEL_PARALLEL_GROUP)`; `0` without a description, and for all ranks."""
    return group if description in _NO_DESCRIPTIONS else f"{group} ({description})"


def _take(entry: dict[str, Any], rank: int, groups: dict[str, dict[int, Calls]]) -> None:
    """Add a collective to `groups` by group, rank and number.

    Raises one of json_recovery.UNEXPECTED if the entry is not as PyTorch writes it.
    """
    number = entry.get("collective_seq_id", entry.get("seq_id"))
    function = _BACKEND.sub("", str(entry["profiling_name"]))
    name = function.partition(" ")[0]
    if entry.get("is_p2p") or merge.function(name) in merge.POINT_TO_POINT:
        return
    if not isinstance(number, int):
        raise ValueError("it has no number (collective_seq_id)")
    since_ns = int(entry.get("time_created_ns") or 0)
    if not (0 <= number < _MAX_FIGURE and 0 <= since_ns < _MAX_FIGURE):
        raise ValueError(f"{function}: its number or time is out of range")
    group, _ = group_of(entry)
    calls = groups.setdefault(group, {}).setdefault(rank, {})
    calls[number] = _StartedCollective(
        function,
        _size(function, entry),
        since_ns,
        has_ended(entry),
        entry.get("state") == "completed",
    )


def _size(function: str, entry: dict[str, Any]) -> str:
    sizes, types = _EQUAL.get(merge.function(function) or "", ("", ""))
    if not entry.get(sizes):
        return ""
    listed = entry.get(types)
    kind = listed[0] if isinstance(listed, list) and listed else ""
    return f"{elements(entry[sizes])} {kind}".strip()


@dataclass(slots=True)
class _DumpedProgress:
    """How far ranks have come by the `pg_status` of their dumps, which has a group's number on the
    rank (`pg_id`). Dumps may list only calls that have not ended, so that an entry that is missing
    tells nothing of the call.
    """

    status: dict[int, dict[str, Any]] = field(default_factory=dict)  # by rank
    ids: dict[str, dict[int, str]] = field(default_factory=dict)  # by group and rank
    partial: set[int] = field(default_factory=set)  # ranks whose dumps list only such calls
    descriptions: dict[str, str] = field(default_factory=dict)  # by group

    def add(self, rank: int, dump: dict[str, Any]) -> None:
        status = dump.get("pg_status")
        self.status[rank] = status if isinstance(status, dict) else {}
        entries = [entry for entry in dump.get("entries", []) if isinstance(entry, dict)]
        for entry in entries:
            group, description = group_of(entry)
            self.descriptions[group] = description
            self.ids.setdefault(group, {})[rank] = str(entry.get("pg_id", ""))
        if lists_only_open(entries):
            self.partial.add(rank)

    def completed(self, group: str, rank: int) -> int:
        """The number of its last call that has completed; -1 if unknown."""
        return self._number(rank, self.ids[group].get(rank, ""), "last_completed_collective")

    def last_before(self, group: str, rank: int, first: int) -> str:
        """The last call of a rank whose dump has none of the group, if it is the one before
        `first`, which others have called; 'none' if it has called none; '' if unknown.
        """
        own_ids = set(self.ids[group].values())
        if self.status[rank]:
            only = own_ids.pop() if len(own_ids) == 1 else ""
            called = self._number(rank, only, "last_enqueued_collective")
            return f"number {called}" if called == first - 1 else ""
        return "" if rank in self.partial else "none"

    def _number(self, rank: int, pg_id: str, name: str) -> int:
        of_group = self.status.get(rank, {}).get(pg_id)
        number = of_group.get(name) if isinstance(of_group, dict) else None
        return number if isinstance(number, int) else -1


def _first(
    group: str, ranks: dict[int, Calls], members: set[int], progress: _DumpedProgress
) -> Outstanding | None:
    """The collective with the lowest number that ranks called differently, else the lowest that
    has not ended; None if there is none.
    """
    first = _first_different(ranks)
    different = {}
    if first is not None:
        different = {rank: str(calls[first]) for rank, calls in ranks.items() if first in calls}
    else:
        first = _first_open(ranks)
    if first is None:
        return None
    firsts = [calls[first] for calls in ranks.values() if first in calls]
    absent = {}
    for rank, calls in sorted(ranks.items(), key=lambda item: item[0]):
        last = max(calls)
        if last < first:
            absent[rank] = f"{calls[last].function} number {last}"
    for rank in sorted(members & progress.status.keys() - ranks.keys()):
        if text := progress.last_before(group, rank, first):
            absent[rank] = text
    waiting = [
        rank for rank, calls in ranks.items() if first in calls and not calls[first].has_ended
    ]
    usual = _usual(first, ranks) if different else ("", "")
    still_open = [call for call in firsts if not call.has_ended] or firsts
    return Outstanding(
        group=named_group(group, progress.descriptions[group]),
        seq=first,
        function=still_open[0].function,
        since_ns=min(call.since_ns for call in still_open),
        waiting=sorted(waiting),
        completed=sorted(
            rank
            for rank, calls in ranks.items()
            if rank not in waiting and _completed(calls, first, progress.completed(group, rank))
        ),
        absent=absent,
        silent=sorted(members - progress.status.keys()),
        different=dict(sorted(different.items())),
        usual=usual[0],
        left_out=usual_call.left_out(different, *usual),
        resized=usual_call.resized(different, usual[0]),
    )


def _completed(calls: Calls, number: int, up_to: int) -> bool:
    return calls[number].is_completed if number in calls else up_to >= number


def _usual(first: int, ranks: dict[int, Calls]) -> tuple[str, str]:
    """What usually is the call with this number, and the one after it."""
    earlier: dict[int, str] = {}
    for calls in ranks.values():
        earlier |= {number: str(call) for number, call in calls.items() if number < first}
    return usual_call.usual(usual_call.before(first, earlier))


def _first_open(ranks: dict[int, Calls]) -> int | None:
    numbers = []
    for calls in ranks.values():
        numbers += [number for number, call in calls.items() if not call.has_ended]
    return min(numbers, default=None)


def _first_different(ranks: dict[int, Calls]) -> int | None:
    seen: Calls = {}
    different = []
    for calls in ranks.values():
        for number, call in calls.items():
            if call.differs(seen.setdefault(number, call)):
                different.append(number)
    return min(different, default=None)
