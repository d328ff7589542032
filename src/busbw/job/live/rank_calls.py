"""The calls of PyTorch's ranks, as pattern/recorder/busbw_rank_now.py writes them each second."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from busbw.job.live.files import RankNews
from busbw.pattern.collector import Collector
from busbw.pattern.pending_collective import Outstanding, of_dumps
from busbw.pattern.readers.flight_recorder import members


@dataclass(slots=True)
class RankCalls:
    """The last calls of a rank, and the numbers of the last of each process group."""

    pg_config: dict[str, Any] = field(default_factory=dict)
    pg_status: dict[str, Any] = field(default_factory=dict)
    entries: list[dict[str, Any]] = field(default_factory=list)

    def take(self, news: RankNews) -> None:
        """What is new."""
        self.pg_config = self.pg_config if news.pg_config is None else news.pg_config
        self.entries = self.entries if news.entries is None else news.entries
        self.pg_status = news.pg_status

    def dump(self) -> dict[str, Any]:
        """Its part in the form of a dump of the Flight Recorder."""
        return {"pg_config": self.pg_config, "pg_status": self.pg_status, "entries": self.entries}

    def open_call(self) -> str:
        """The first call that has not ended, by its name or number; '' if there is none."""
        for entry in self.entries:
            if not entry.get("retired") and entry.get("state") != "completed":
                return str(entry.get("profiling_name", ""))
        for group in self.pg_status:
            last, done = self.last(group), self._number(group, "last_completed_collective")
            if last is not None and done is not None and last > done:
                return f"call {done + 1} of group {group}"
        return ""

    def last(self, group: str) -> int | None:
        """The number of the last call in a process group; None if that is unknown."""
        return self._number(group, "last_enqueued_collective")

    def _number(self, group: str, name: str) -> int | None:
        status = self.pg_status.get(group)
        value = status.get(name) if isinstance(status, dict) else None
        return value if isinstance(value, int) else None


def pending(ranks: Mapping[int, RankCalls]) -> list[Outstanding]:
    """The collectives that are pending or differ, of the ranks that stand still.

    A rank without calls in its file is one of `silent`; by the number of its last call it is told
    whether it is one of `absent`.
    """
    named = [(str(number), number, rank.dump()) for number, rank in ranks.items() if rank.entries]
    found = of_dumps(named, Collector("now"))
    for one in found:
        for number in list(one.silent):
            rank = ranks.get(number)
            last = rank.last(one.group) if rank else None
            if last is not None:
                one.silent.remove(number)
            if last is not None and last < one.seq:
                one.absent[number] = f"number {last}"
    return found


def last_calls(ranks: Mapping[int, RankCalls]) -> dict[str, dict[int, int]]:
    """By process group and rank the number of the last call: of the groups of which all members
    have written it.
    """
    configured: dict[str, Any] = {}
    for rank in ranks.values():
        configured |= rank.pg_config
    found: dict[str, dict[int, int]] = {}
    for group in configured:
        of_group = members(configured, group)
        known = {number: ranks[number].last(group) for number in of_group if number in ranks}
        numbers = {number: last for number, last in known.items() if last is not None}
        if numbers and len(numbers) == len(of_group):
            found[group] = numbers
    return found
