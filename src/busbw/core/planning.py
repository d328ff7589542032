"""What `busbw plan` measured, and what follows from it: a part of busbw.result/1. Seconds and bytes throughout.

The prediction: DDP hands over its buckets one after the other while backward goes on, and each waits until the one before it has been
exchanged. A bucket's exchange was measured by itself, with nothing beside it; what it computes on the processors that backward computes
on too makes backward later by as much. What of all that ends after the last bucket was ready is exposed: compression pays where it makes
that shorter than it was.
"""

from itertools import repeat

import msgspec

AS_IS = "as-is"
ALIKE = 0.02  # of the fastest step: what is as fast, where nothing reaches what was asked for
# What of a gradient a method loses; the number is an Exchange's `loss`.
LOSSES = (
    "nothing",
    "rounded to 16 bits",
    "rounded to 8 bits, the rest sent later",
    "a low rank now, the rest later",
    "the largest now, the rest later",
    "rounded to 4 bits, the rest sent later",
)
LEAST_FIRST = (0, 1, 2, 5, 3, 4)  # numbers are kept in results, and what came later lies between


class PlanSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement for a plan: over which of core.transports, how often each exchange is timed, and the share of a rank's own rate that
    a step should reach.
    """

    transport: str = AS_IS
    replays: int = 5
    target: float = 0.95


class Bucket(msgspec.Struct, frozen=True):
    """One of DDP's buckets, in the order of their exchange: its bytes, and when in a step its gradients are ready, on the slowest rank."""

    nbytes: int
    ready_s: float


class Exchange(msgspec.Struct):
    """What one method takes over one transport.

    `loss` is a place in LOSSES; `bucket_s` the median time of each bucket's exchange by itself, as long as the last rank to begin took;
    `busy_s` what of it backward loses on CPUs, empty on GPUs: the processor time of the rank that took most, over its threads; `counted`
    the bytes a step that leave a host, the most of all hosts, None where nobody counts; `code` the line of Python that has it.
    `checked_s` is the median step of a training with it, where one was run.
    """

    transport: str
    method: str
    loss: int
    bucket_s: list[float]
    busy_s: list[float] = []
    counted: float | None = None
    code: str = ""
    checked_s: float | None = None


class Plan(msgspec.Struct):
    """`target` as in PlanSpec; `alone_s` is a rank's step by itself, `still_s` the same under DDP that exchanges nothing: the step on a
    perfect network.
    """

    target: float
    alone_s: float
    still_s: float
    buckets: list[Bucket]
    exchanges: list[Exchange] = []

    def exposed_s(self, exchange: Exchange) -> float:
        """What a step waits for its exchange."""
        end = late = 0.0
        for bucket, took, busy in zip(self.buckets, exchange.bucket_s, exchange.busy_s or repeat(0.0), strict=False):
            end = max(end, bucket.ready_s + late) + took
            late += busy
        return end - self.buckets[-1].ready_s

    def step_s(self, exchange: Exchange) -> float:
        """The predicted step."""
        return self.still_s + self.exposed_s(exchange)

    def efficiency(self, exchange: Exchange) -> float:
        """The predicted rate as a share of a rank's own."""
        return self.alone_s / self.step_s(exchange)

    def known_s(self, exchange: Exchange) -> float:
        """The step of a training with it, where one was run, otherwise the predicted one."""
        return exchange.checked_s or self.step_s(exchange)

    def reaches(self, exchange: Exchange) -> bool:
        """Whether it reaches the target, as far as is known."""
        return self.alone_s >= self.target * self.known_s(exchange)

    def recommended(self) -> Exchange | None:
        """The least lossy that reaches the target; where none does, the least lossy of those that are as good as fastest.

        Of two that lose alike the one that was listed first: transports begin with what needs no setting.
        """
        if not self.exchanges:
            return None
        fine = [one for one in self.exchanges if self.reaches(one)]
        if not fine:
            fastest = min(map(self.known_s, self.exchanges))
            fine = [one for one in self.exchanges if self.known_s(one) <= (1 + ALIKE) * fastest]
        return min(fine, key=lambda one: LEAST_FIRST.index(one.loss))
