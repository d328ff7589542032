"""Which collectives have not ended, and who has not called them: Flight Recorder dumps of a job
that hangs.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from busbw.pattern.collector import Collector
from busbw.pattern.readers import json_recovery
from busbw.pattern.readers.flight_recorder import members, whole
from busbw.pattern.registry import sources

_BACKEND = re.compile(r"^[\w-]+:")
Calls = dict[int, dict[str, Any]]  # entries by number within their group


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
    """Of each process group the first collective that has not ended on all ranks, the oldest first;
    and what could not be read.

    The number of a rank is in the name of its file. UsageError if a file cannot be opened.
    """
    collector, groups, configured = (
        Collector("flight recorder"),
        dict[str, dict[int, Calls]](),
        dict[str, Any](),
    )
    for source in sources(files):
        with source.stream:
            dump = whole(source, collector) or {}
        rank = source.rank if source.rank is not None else source.number
        configured |= dump.get("pg_config") or {}
        for entry in dump.get("entries", []):
            try:
                _take(entry, rank, groups)
            except json_recovery.UNEXPECTED as error:
                collector.problem(f"{source.name}: {type(error).__name__}: {error}")
    found = [
        one
        for name, ranks in groups.items()
        if (one := _first(name, ranks, _listed(configured, name)))
    ]
    return sorted(found, key=lambda one: one.since_ns), collector.header.notes


def _listed(configured: Any, group: str) -> set[int]:
    """The ranks of a group. Gloo lists those of the default group under no name."""
    return set(members(configured, group) or members(configured, ""))


def _take(entry: dict[str, Any], rank: int, groups: dict[str, dict[int, Calls]]) -> None:
    number = entry.get("collective_seq_id", entry.get("seq_id"))
    if entry.get("is_p2p") or not isinstance(number, int):
        return
    given = entry.get("process_group") or (str(entry.get("pg_id", "")), "")
    groups.setdefault(str(given[0]), {}).setdefault(rank, {})[number] = entry


def _ended(entry: dict[str, Any]) -> bool:
    """Gloo's entries stay `scheduled`; they are retired when they end."""
    return entry.get("state") == "completed" or bool(entry.get("retired"))


def _first(group: str, ranks: dict[int, Calls], listed: set[int]) -> Outstanding | None:
    """The collective with the lowest number that has not ended, if there is one."""
    open_calls = [
        (number, entry)
        for calls in ranks.values()
        for number, entry in calls.items()
        if not _ended(entry)
    ]
    if not open_calls:
        return None
    number = min(number for number, _ in open_calls)
    same = [entry for other, entry in open_calls if other == number]
    late = {rank: calls for rank, calls in ranks.items() if max(calls) < number}
    return Outstanding(
        group=group,
        seq=number,
        function=_function(same[0]),
        since_ns=min((int(entry.get("time_created_ns") or 0) for entry in same), default=0),
        waiting=sorted(
            rank for rank, calls in ranks.items() if number in calls and not _ended(calls[number])
        ),
        absent={
            rank: f"{_function(calls[max(calls)])} number {max(calls)}"
            for rank, calls in sorted(late.items())
        },
        silent=sorted(listed - ranks.keys()),
    )


def _function(entry: dict[str, Any]) -> str:
    return _BACKEND.sub("", str(entry["profiling_name"]))
