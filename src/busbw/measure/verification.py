"""Verification of one call: the data to write, to expect, and to find unchanged, from the
collective's moves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from busbw.core.layouts import InPlace
from busbw.core.result import Mismatch
from busbw.engines.base import CollectiveCall, Engine, Probe, Region, WrongData


def write(engine: Engine, call: CollectiveCall, probe: Probe) -> None:
    """Fill every local rank's buffers: sentinels where data will arrive, then the rank's input."""
    for memory, rank in zip(engine.memories(), engine.ranks, strict=True):
        if not call.in_place:
            memory.write(call, "recv", [Region(0, call.recv, "untouched")], probe)
        elif call.collective.in_place is InPlace.SEND_IN_RECV:
            memory.write(call, "recv", around(call, rank), probe)
        memory.write(call, "send", [Region(0, call.send, "sent", rank, 0)], probe)


def around(call: CollectiveCall, rank: int) -> list[Region]:
    """The receive buffer except the rank's own part, which is the input of an in-place call."""
    own_start, own_end = rank * call.layout.count, (rank + 1) * call.layout.count
    return [Region(0, own_start, "untouched"), Region(own_end, call.recv - own_end, "untouched")]


def expected(call: CollectiveCall, rank: int) -> list[Region]:
    """The receive buffer of `rank` after the call: moved or reduced data, the rest unchanged."""
    moves = sorted(call.collective.moves(call.layout, rank), key=lambda move: move.dst)
    regions: list[Region] = []
    end = 0  # of the regions so far
    for move in moves:
        regions += untouched(call, rank, end, move.dst)
        source, first = move.sources[0]
        # A reduction over one rank still multiplies or divides, so it is not sent data.
        kind = "reduced" if call.collective.reduces else "sent"
        regions.append(Region(move.dst, move.length, kind, source, first))
        end = move.dst + move.length
    regions += untouched(call, rank, end, call.recv)
    return [region for region in regions if region.length > 0]


def untouched(call: CollectiveCall, rank: int, start: int, end: int) -> list[Region]:
    """Elements `start` to `end`, to which nothing moves: sentinels, or in place rank's input."""
    if not call.in_place:
        return [Region(start, end - start, "untouched")]
    if call.collective.in_place is InPlace.SEND_IN_RECV:
        own_start = rank * call.layout.count
        own_end = own_start + call.layout.count
        first, last = max(start, own_start), min(end, own_end)
        after = max(start, own_end)
        return [
            Region(start, min(end, own_start) - start, "untouched"),
            Region(first, last - first, "sent", rank, max(start - own_start, 0)),
            Region(after, end - after, "untouched"),
        ]
    first = rank * call.layout.count if call.collective.in_place is InPlace.RECV_IN_SEND else 0
    return [Region(start, end - start, "sent", rank, first + start)]


def check(engine: Engine, call: CollectiveCall, probe: Probe) -> list[WrongData]:
    """The wrong elements in each local rank's receive buffer."""
    return [
        memory.check(call, "recv", expected(call, rank), probe)
        for memory, rank in zip(engine.memories(), engine.ranks, strict=True)
    ]


@dataclass(slots=True)
class Tally:
    """The wrong elements of one cell over rounds and local ranks, with each rank's first mismatch
    of a round.
    """

    wrong: int = 0
    bad_rounds: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)

    def add(self, ranks: Sequence[int], wrongs: Sequence[WrongData], probe: Probe) -> None:
        """Count one round: the wrong elements of each of these ranks."""
        for rank, wrong in zip(ranks, wrongs, strict=True):
            if wrong.count:
                expected = probe.text(int.from_bytes(wrong.expected, "little"))
                got = probe.text(int.from_bytes(wrong.got, "little"))
                self.mismatches.append(Mismatch(rank, wrong.offset, expected, got, wrong.count))
        self.wrong += sum(wrong.count for wrong in wrongs)
        self.bad_rounds += any(wrong.count for wrong in wrongs)


def run_round(
    engine: Engine, call: CollectiveCall, once: Callable[[], object], probe: Probe
) -> list[WrongData]:
    """Write the input, complete the operation, and compare."""
    write(engine, call, probe)
    once()
    return check(engine, call, probe)
