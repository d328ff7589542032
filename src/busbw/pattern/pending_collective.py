"""Which collectives have not ended, and who has not called them: Flight Recorder dumps of a job
that hangs.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from busbw.pattern.collector import Collector
from busbw.pattern.readers import json_recovery
from busbw.pattern.readers.flight_recorder import group_of, members, read_dump
from busbw.pattern.registry import sources

_BACKEND = re.compile(r"^[\w-]+:")
_MAX_FIGURE = 1 << 63  # numbers and times in ns have 64 bits


class _Started(NamedTuple):
    """A collective that a rank has called."""

    function: str
    since_ns: int
    has_ended: bool


Calls = dict[int, _Started]  # by number within their group


class Outstanding(msgspec.Struct, kw_only=True):
    """The first collective of a process group that some ranks have called and that has not ended,
    from Flight Recorder dumps.

    Ranks are those of the job. `absent` have not called it; `silent` gave no dump. `since_ns` is
    Unix time of its first call.
    """

    group: str
    seq: int
    function: str
    since_ns: int
    waiting: list[int] = []
    absent: dict[int, str] = {}  # with their last call: `all_reduce number 7`
    silent: list[int] = []


def outstanding(files: Sequence[str]) -> tuple[list[Outstanding], list[str]]:
    """The first collective of each process group that has not ended on all ranks, the oldest
    first, and notes on what could not be read.

    The number of a rank is in the name of its file. UsageError if a file cannot be opened.
    """
    collector = Collector("flight recorder")
    groups: dict[str, dict[int, Calls]] = {}
    configured: dict[str, Any] = {}
    for source in sources(files):
        with source.stream:
            dump = read_dump(source, collector) or {}
        rank = source.rank if source.rank is not None else source.number
        if isinstance(dump.get("pg_config"), dict):
            configured |= dump["pg_config"]
        for at, entry in enumerate(dump.get("entries", [])):
            try:
                _take(entry, rank, groups)
            except json_recovery.UNEXPECTED as error:
                collector.add_problem(f"{source.name}: entry {at}: {type(error).__name__}: {error}")
    pending = []
    for name, ranks in groups.items():
        collective = _first(name, ranks, _members(configured, name))
        if collective:
            pending.append(collective)
    pending.sort(key=lambda collective: collective.since_ns)
    return pending, collector.header.notes


def _members(configured: dict[str, Any], group: str) -> set[int]:
    """The ranks of a group. Gloo lists those of the default group under no name."""
    return set(members(configured, group) or members(configured, ""))


def _take(entry: dict[str, Any], rank: int, groups: dict[str, dict[int, Calls]]) -> None:
    """Add a collective to `groups` by group, rank and number.

    Raises one of json_recovery.UNEXPECTED if the entry is not as PyTorch writes it.
    """
    number = entry.get("collective_seq_id", entry.get("seq_id"))
    if entry.get("is_p2p") or not isinstance(number, int):
        return
    function = _BACKEND.sub("", str(entry["profiling_name"]))
    since_ns = int(entry.get("time_created_ns") or 0)
    if not (0 <= number < _MAX_FIGURE and 0 <= since_ns < _MAX_FIGURE):
        raise ValueError(f"{function}: its number or time is out of range")
    # Gloo's entries stay `scheduled`; they are retired when they end.
    has_ended = entry.get("state") == "completed" or bool(entry.get("retired"))
    group, _ = group_of(entry)
    calls = groups.setdefault(group, {}).setdefault(rank, {})
    calls[number] = _Started(function, since_ns, has_ended)


def _first(group: str, ranks: dict[int, Calls], members: set[int]) -> Outstanding | None:
    """The collective with the lowest number that has not ended, if there is one."""
    open_calls = []
    for calls in ranks.values():
        open_calls += [(number, call) for number, call in calls.items() if not call.has_ended]
    if not open_calls:
        return None
    first = min(number for number, _ in open_calls)
    firsts = [call for number, call in open_calls if number == first]
    waiting = [
        rank for rank, calls in ranks.items() if first in calls and not calls[first].has_ended
    ]
    absent = {}
    for rank, calls in sorted(ranks.items(), key=lambda item: item[0]):
        last = max(calls)
        if last < first:
            absent[rank] = f"{calls[last].function} number {last}"
    return Outstanding(
        group=group,
        seq=first,
        function=firsts[0].function,
        since_ns=min(call.since_ns for call in firsts),
        waiting=sorted(waiting),
        absent=absent,
        silent=sorted(members - ranks.keys()),
    )
