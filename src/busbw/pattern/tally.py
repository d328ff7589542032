"""Makes a pattern of single calls: every importer and the merging of ranks go through it."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import msgspec

from busbw.core.pattern import Call, Comm, Header, Pattern, PatternRow, Times


class Arguments(msgspec.Struct, frozen=True):
    """What calls of one row have in common; the fields are those of `PatternRow`."""

    comm: int
    function: str
    bytes: int
    count: int | None = None
    dtype: str | None = None
    op: str | None = None
    root: int | None = None
    rank: int | None = None
    peer: int | None = None
    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None


@dataclass(slots=True)
class _Seen:
    row: PatternRow
    cpu_us: "array[float]" = field(default_factory=lambda: array("d"))
    gpu_us: "array[float]" = field(default_factory=lambda: array("d"))


class Tally:
    """Collects communicators and calls. With `ordered` False it keeps counts and times alone."""

    def __init__(self, header: Header, *, ordered: bool) -> None:
        self.header = header
        self._ordered = ordered
        self._comms: list[Comm] = []
        self._seen: dict[Arguments, _Seen] = {}
        self._calls: list[Call] = []

    def comm(
        self, ranks: int, name: str = "", hosts: int = 0, members: Sequence[int] = (), read: int = 0
    ) -> int:
        """Add a communicator; returns its id."""
        self._comms.append(Comm(len(self._comms), ranks, name, hosts, list(members), read))
        return len(self._comms) - 1

    def add(
        self,
        arguments: Arguments,
        calls: int = 1,
        *,
        at_us: float | None = None,
        cpu_us: float | None = None,
        gpu_us: float | None = None,
        gpu_at_us: float | None = None,
        predicted_us: float | None = None,
        skew_us: float | None = None,
        stream: int | None = None,
        group: int | None = None,
    ) -> None:
        """Add one call, or several that are alike and have no order."""
        seen = self._seen.get(arguments)
        if seen is None:
            seen = self._seen[arguments] = _Seen(
                PatternRow(len(self._seen), calls=0, **msgspec.structs.asdict(arguments))
            )
        row = seen.row
        row.calls += calls
        if predicted_us is not None:
            row.predicted_us = predicted_us
        if at_us is not None:
            row.first_us = at_us if row.first_us is None else min(row.first_us, at_us)
            row.last_us = at_us if row.last_us is None else max(row.last_us, at_us)
        if cpu_us is not None:
            seen.cpu_us.append(cpu_us)
        if gpu_us is not None:
            seen.gpu_us.append(gpu_us)
        if self._ordered:
            self._calls.extend(
                [Call(row.id, at_us, cpu_us, gpu_us, gpu_at_us, skew_us, stream, group)] * calls
            )

    def pattern(self) -> Pattern:
        """The record of what was added so far."""
        rows = []
        for seen in self._seen.values():
            seen.row.cpu_us, seen.row.gpu_us = _times(seen.cpu_us), _times(seen.gpu_us)
            rows.append(seen.row)
        return Pattern(self.header, self._comms, rows, self._calls)


def _times(taken: "array[float]") -> Times | None:
    return Times(len(taken), sum(taken), min(taken), median(taken), max(taken)) if taken else None
