"""The pending requests of all ranks.

Every rank keeps the same table, so operations become ready in the same order everywhere.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from busbw.horovod.torch.requests import WITH_JOINED, Key, Kind, Request, Response, disagreement

JOIN_KEY: Key = (0, "join")
Members = Mapping[int, tuple[int, ...]]


@dataclass(slots=True)
class _Entry:
    requests: dict[int, Request] = field(default_factory=dict)
    since_s: float = field(default_factory=time.monotonic)
    warned_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Stalled:
    """An operation that some ranks have not requested yet."""

    key: Key
    waited_s: float
    ready: tuple[int, ...]
    missing: tuple[int, ...]


class Table:
    """Pending requests of all ranks."""

    def __init__(self) -> None:
        self._entries: dict[Key, _Entry] = {}

    def __contains__(self, key: Key) -> bool:
        """Whether a rank has requested the operation."""
        return key in self._entries

    @property
    def joined(self) -> frozenset[int]:
        """Ranks that have joined."""
        entry = self._entries.get(JOIN_KEY)
        return frozenset(entry.requests) if entry else frozenset()

    def add(self, rank: int, request: Request) -> None:
        """Add a rank's request."""
        self._entries.setdefault(request.key, _Entry()).requests[rank] = request

    def take_ready(self, members: Members) -> list[Response]:
        """Remove and return operations that all ranks have requested, in the order of their
        first request.
        """
        answered = [
            answer
            for key, entry in self._entries.items()
            if (answer := self._answer(key, entry, members))
        ]
        for answer in answered:
            del self._entries[answer.key]
        return answered

    def _answer(self, key: Key, entry: _Entry, members: Members) -> Response | None:
        ranks = members.get(key[0])
        if ranks is None:
            return Response(key, entry.requests, f"{key[1]}: process set {key[0]} no longer exists")
        missing = set(ranks) - set(entry.requests)
        kinds = {request.kind for request in entry.requests.values()}
        if missing and (Kind.JOIN in kinds or not missing <= self.joined):
            return None
        error = disagreement(entry.requests, ranks)
        if missing and not error and not kinds <= set(WITH_JOINED):
            error = (
                f"{key[1]}: {min(kinds)} is not possible while ranks {sorted(missing)} have joined"
            )
        return Response(key, entry.requests, error)

    def fail(self, key: Key, reason: str) -> Response | None:
        """Remove an operation and return its failure."""
        entry = self._entries.pop(key, None)
        return Response(key, entry.requests, reason) if entry else None

    def stalled(self, members: Members, least_s: float, now_s: float) -> list[Stalled]:
        """Operations that have waited for `least_s`, each reported once per `least_s`.

        Joins are excluded.
        """
        found = []
        for key, entry in self._entries.items():
            if key == JOIN_KEY or now_s - max(entry.since_s, entry.warned_s) < least_s:
                continue
            entry.warned_s = now_s
            missing = sorted(set(members.get(key[0], ())) - set(entry.requests) - self.joined)
            found.append(
                Stalled(key, now_s - entry.since_s, tuple(sorted(entry.requests)), tuple(missing))
            )
        return found

    def overdue(self, least_s: float, now_s: float) -> list[Key]:
        """Operations that have waited for `least_s`."""
        return [
            key
            for key, entry in self._entries.items()
            if key != JOIN_KEY and now_s - entry.since_s >= least_s
        ]
