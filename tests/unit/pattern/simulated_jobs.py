"""Jobs whose ranks compute and communicate by a simple rule, to know which rank is late.

A call begins on a rank when the rank has come to it and its stream is free, and ends on all when
the last rank has begun and the data are sent. Clocks of ranks differ by seconds.
"""

import random
from collections.abc import Mapping, Sequence

from busbw.core.pattern import Pattern
from busbw.pattern.collector import Collector
from busbw.pattern.merge import ObservedCall
from busbw.pattern.pattern_builder import pattern

STEP_US = 50_000.0


class SimulatedJob:
    """`slow` has the factor of a rank's computation."""

    def __init__(self, ranks: int, slow: Mapping[int, float] | None = None, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._slow = dict(slow or {})
        self._ranks = range(ranks)
        self._now = [0.0] * ranks
        self._streams: dict[tuple[int, str], float] = {}
        self._clocks = [self._random.uniform(0, 5e6) for _ in self._ranks]
        self._calls: list[tuple[int, ObservedCall]] = []
        self._members: dict[str, Sequence[int]] = {}

    def compute(self, time_us: float, rank: int | None = None, *, slow: bool = True) -> None:
        """Computation on one rank, or on all; it varies by 2 %."""
        for one in self._ranks if rank is None else [rank]:
            factor = self._slow.get(one, 1.0) if slow else 1.0
            self._now[one] += time_us * factor * (1 + self._random.gauss(0, 0.02))

    def call(
        self, comm: str, members: Sequence[int], time_us: float, *, beside: bool = False
    ) -> None:
        """A collective; `beside`: the ranks compute meanwhile, until they `wait`."""
        self._members[comm] = members
        stream = comm if beside else ""
        starts = [max(self._now[rank], self._streams.get((rank, stream), 0.0)) for rank in members]
        end = max(starts) + time_us
        for rank, start in zip(members, starts, strict=True):
            self._add(rank, comm, "all_reduce", start, end, stream)
            self._streams[rank, stream] = end
            if not beside:
                self._now[rank] = end

    def wait(self, comm: str) -> None:
        """All ranks wait for the calls beside which they computed."""
        for rank in self._ranks:
            self._now[rank] = max(self._now[rank], self._streams.get((rank, comm), 0.0))

    def send(self, sender: int, time_us: float = 50.0) -> float:
        """A send that is not waited for; returns when the data are there."""
        start = self._now[sender]
        self._now[sender] += time_us
        self._add(sender, "pipeline", "send", start, self._now[sender])
        return self._now[sender]

    def receive(self, receiver: int, sent: float, time_us: float = 50.0) -> None:
        """A receive of what is there at `sent`."""
        start = self._now[receiver]
        self._now[receiver] = max(start + time_us, sent)
        self._add(receiver, "pipeline", "recv", start, self._now[receiver])

    def pause(self, time_us: float) -> None:
        """All ranks do nothing."""
        self._now = [now + time_us for now in self._now]

    def _add(
        self, rank: int, comm: str, function: str, start: float, end: float, stream: str = ""
    ) -> None:
        at_us = start + self._clocks[rank]
        call = ObservedCall(
            comm, function, 1024, at_us=at_us, gpu_at_us=at_us, gpu_us=end - start, stream=stream
        )
        self._calls.append((rank, call))

    def pattern(
        self,
        read: Sequence[int] | None = None,
        ranks_per_host: int = 0,
        cut: tuple[int, int] | None = None,
    ) -> Pattern:
        """The record of the ranks `read`; all without. The file of the rank `cut[0]` is cut off
        after so many calls.
        """
        collector = Collector("profiler")
        collector.header.world = len(self._ranks)
        for rank in self._ranks if read is None else read:
            collector.add_process(rank, rank)
            if ranks_per_host:
                collector.add_host(f"h{rank // ranks_per_host}", rank)
        for comm, members in self._members.items():
            collector.add_comm(comm, len(members), comm, members=members)
        left = dict([cut] if cut else [])
        for rank, call in self._calls:
            left[rank] = left.get(rank, len(self._calls)) - 1
            if rank in collector.ranks and left[rank] >= 0:
                collector.add_call(rank, call)
        if cut:
            collector.add_problem(f"rank_{cut[0]}.json: truncated")
        return pattern(collector)


def data_parallel(job: SimulatedJob, ranks: int, *, slow: bool = True) -> None:
    """A step of DistributedDataParallel: buckets are sent beside backward."""
    members = range(ranks)
    job.compute(0.35 * STEP_US, slow=slow)
    for _ in range(6):
        job.compute(0.1 * STEP_US, slow=slow)
        job.call("dp", members, 1500.0, beside=True)
    job.wait("dp")
    job.compute(0.05 * STEP_US, slow=slow)


def sharded(job: SimulatedJob, ranks: int) -> None:
    """A step whose layers wait for their parameters."""
    for _ in range(8):
        job.call("shards", range(ranks), 700.0)
        job.compute(0.9 * STEP_US / 8)
    job.compute(0.1 * STEP_US)


def tensor_parallel(job: SimulatedJob, ranks: int) -> None:
    """A step in which pairs of ranks exchange activations, and then all with gradients."""
    for _ in range(6):
        job.compute(STEP_US / 6)
        for first in range(0, ranks, 2):
            job.call(f"tp{first // 2}", [first, first + 1], 150.0)
    for first in (0, 1):
        job.call(f"dp{first}", range(first, ranks, 2), 1200.0)


def pipelined(job: SimulatedJob, stages: int, batches: int = 4) -> None:
    """A step of a pipeline: all batches forward, then all backward, then an all_reduce."""
    forward = [0.0] * batches
    for stage in range(stages):
        for batch in range(batches):
            if stage:
                job.receive(stage, forward[batch])
            job.compute(STEP_US / 12, stage)
            forward[batch] = job.send(stage) if stage < stages - 1 else 0.0
    for stage in reversed(range(stages)):
        for batch in range(batches):
            if stage < stages - 1:
                job.receive(stage, forward[batch])
            job.compute(STEP_US / 6, stage)
            forward[batch] = job.send(stage) if stage else 0.0
    job.call("world", range(stages), 30.0)
