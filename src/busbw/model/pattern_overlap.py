"""How long the calls of a recorded application take, where some of them ran at the same time.

A rank's calls are grouped by their recorded times on the GPU: those whose times overlap ran
together, with those of ranks that share its NIC. Where calls have no such times, all of a rank's
calls are one group, of which nothing is known. Ranks that make the same calls count once.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from busbw.core.pattern import Pattern
from busbw.model.overlap import Ratios, TimeRange, Work, apart_s, span
from busbw.model.pattern_ranks import RankKind, rank_kinds
from busbw.model.types import PredictedRow

FORMATS_WITHOUT_COMMS = ("pattern-csv",)  # their rows may be of any communicator
MAX_CALLS = 2_000_000  # whose times are compared, of all kinds of ranks together
_Group = tuple[tuple[int, int], ...]  # rows, and the number of their calls that ran together


@dataclass(frozen=True, slots=True)
class Overlap:
    """What the calls of a pattern take in all, if some run at the same time."""

    total: TimeRange  # averaged over the pattern's ranks, like PatternPrediction.total_s
    calls: int  # those with a forecast
    untimed: int  # calls of these whose time on the GPU is not known
    # pairs of functions that ran together on a rank, on different communicators
    together: frozenset[frozenset[str]]
    shared_nics: bool  # ranks share a NIC with others that have other calls


@dataclass(slots=True)
class _TimedRows:
    """The rows with a forecast, and when their calls ran: starts and ends in microseconds."""

    pattern: Pattern
    rows: dict[int, PredictedRow]
    ratios: Ratios
    intervals: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    streams: dict[int, int | None] = field(default_factory=dict)  # None: several, or unknown

    def read_calls(self) -> None:
        """Read when the calls of each row ran, and on which stream."""
        for call in self.pattern.calls:
            if call.row not in self.rows:
                continue
            if call.stream != self.streams.setdefault(call.row, call.stream):
                self.streams[call.row] = None
            if call.gpu_at_us is not None and call.gpu_us is not None:
                interval = call.gpu_at_us, call.gpu_at_us + call.gpu_us
                self.intervals.setdefault(call.row, []).append(interval)

    def work(self, number: int, calls: int) -> Work:
        """What `calls` calls of the row `number` take on one rank."""
        row, stream = self.rows[number], self.streams.get(number)
        comm = self.pattern.comm(self.pattern.rows[number])
        time_s = row.forecast.time_s if row.forecast else 0.0
        lacks_comms = self.pattern.header.source in FORMATS_WITHOUT_COMMS
        chains = [f"row {number}" if lacks_comms else f"comm {comm.id}"]
        if stream is not None:  # numbered by the communicator's first rank
            chains.append(f"stream {stream} of rank {min(comm.members, default=0)}")
        gpu_s, nic_s = (calls * min(busy_s, time_s) for busy_s in (row.gpu_s, row.nic_s))
        return Work(row.function, tuple(chains), calls * time_s, gpu_s, nic_s)

    def works(self, numbers: Iterable[int], calls: dict[int, int]) -> list[Work]:
        return [self.work(number, calls[number]) for number in numbers if calls.get(number)]

    def together(self, kind: RankKind, calls: dict[int, int], *, known: bool) -> TimeRange:
        """How long a rank takes for its part of these calls; `known`: they ran together."""
        own, beside = self.works(kind.own, calls), self.works(kind.beside, calls)
        others_s = sum(work.nic_s for work in beside)
        return (
            span(own, self.ratios, ran_together=known, others_nic_s=others_s)
            if own
            else TimeRange()
        )

    def groups(self, kind: RankKind) -> Counter[_Group]:
        """The groups of calls that ran together, and how often each came."""
        timed = []
        for number in kind.rows:
            timed += [(*interval, number) for interval in self.intervals.get(number, ())]
        groups: Counter[_Group] = Counter()
        rows: Counter[int] = Counter()
        last_us = 0.0
        for start_us, end_us, number in sorted(timed):
            if rows and start_us >= last_us:
                groups[tuple(sorted(rows.items()))] += 1
                rows.clear()
            last_us = max(last_us, end_us) if rows else end_us
            rows[number] += 1
        if rows:
            groups[tuple(sorted(rows.items()))] += 1
        return groups

    def pairs(self, kind: RankKind, groups: Iterable[_Group]) -> set[frozenset[str]]:
        """The pairs of functions that ran together on a rank, on different communicators."""
        own, pairs = set(kind.own), set[frozenset[str]]()
        for group in groups:
            rows = [self.pattern.rows[number] for number, _ in group if number in own]
            for first in rows:
                others = [row for row in rows if row.comm != first.comm]
                pairs |= {frozenset((first.function, other.function)) for other in others}
        return pairs


def overlap(
    pattern: Pattern, rows: Sequence[PredictedRow], ratios: Ratios, per_host: int, gpus_of_nic: int
) -> Overlap:
    """The range of a pattern's total: calls overlap as their times say, or as they may if unknown.

    `rows` have the forecasts, and `ratios` how much calls slow each other down. Of the `per_host`
    ranks of a host, `gpus_of_nic` use the same NIC.
    """
    timed = _TimedRows(pattern, {row.row: row for row in rows if row.forecast}, ratios)
    timed.read_calls()
    calls = sum(row.calls for row in timed.rows.values())
    untimed = max(0, calls - sum(map(len, timed.intervals.values())))
    total, ranks_apart_s = TimeRange(), 0.0
    pairs: set[frozenset[str]] = set()
    kinds = rank_kinds(pattern, timed.rows, per_host, gpus_of_nic)
    for kind, ranks in _within_budget(kinds, timed):
        all_calls = {number: timed.rows[number].calls for number in kind.rows}
        ranks_apart_s += ranks * apart_s(timed.works(kind.own, all_calls))
        groups = timed.groups(kind)
        pairs |= timed.pairs(kind, groups)
        known = TimeRange()
        for group, times in groups.items():
            known += timed.together(kind, dict(group), known=True).times(times)
        if untimed:
            unknown = timed.together(kind, all_calls, known=False)
            known = TimeRange(max(known.least_s, unknown.least_s), unknown.most_s)
        total += known.times(ranks)
    scale = sum(row.total_s for row in rows) / ranks_apart_s if ranks_apart_s else 0.0
    shared_nics = any(kind.beside for kind in kinds)
    return Overlap(total.times(scale), calls, untimed, frozenset(pairs), shared_nics)


def _within_budget(kinds: Counter[RankKind], timed: _TimedRows) -> list[tuple[RankKind, int]]:
    """Kinds of ranks at even distances, so that no more than MAX_CALLS are compared."""
    calls = 0
    for kind in kinds:
        calls += sum(len(timed.intervals.get(number, ())) for number in kind.rows)
    return list(kinds.items())[:: max(1, -(-calls // MAX_CALLS))]
