"""What `busbw plan` measured, and its prediction; a part of busbw.result/1. Times are seconds and sizes bytes.

DDP passes on its buckets one after the other during backward; each waits until the previous one has been exchanged. Each bucket's
exchange was measured with nothing else running. Computation of an exchange on the processors of backward delays backward by its
duration. The time from the last bucket being ready to the end of its exchange is exposed.
"""

from itertools import repeat

import msgspec

AS_IS = "as-is"
ALIKE = 0.02  # largest difference treated as equal, as a share of the fastest step, if no method reaches the target
# What a method loses of a gradient; Exchange.loss is an index into it.
LOSSES = (
    "nothing",
    "rounded to 16 bits",
    "rounded to 8 bits, the rest sent later",
    "a low rank now, the rest later",
    "the largest now, the rest later",
    "rounded to 4 bits, the rest sent later",
)
LEAST_FIRST = (0, 1, 2, 5, 3, 4)  # results contain the indices, so that later entries were appended


class PlanSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement for a plan: the transport (core.transports), the repeats of each exchange, and the target efficiency."""

    transport: str = AS_IS
    replays: int = 5
    target: float = 0.95


class Bucket(msgspec.Struct, frozen=True):
    """One of DDP's buckets, in the order of exchange: bytes, and when its gradients are ready in a step, on the slowest rank."""

    nbytes: int
    ready_s: float


class Exchange(msgspec.Struct):
    """One method over one transport.

    `loss` is an index into LOSSES. `bucket_s` is the median time of each bucket's exchange, on the rank that started last. `busy_s` is
    the part that delays backward on CPUs: the largest processor time of a rank divided by its threads; empty on GPUs. `counted` is the
    bytes per step that leave a host, the maximum over hosts, None if unknown. `code` is the line of Python that selects the method.
    `checked_s` is the median step of a training run with it, if there was one.
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
    """`target` as in PlanSpec; `alone_s` is a step of a rank on its own, `still_s` one under DDP over a perfect network."""

    target: float
    alone_s: float
    still_s: float
    buckets: list[Bucket]
    exchanges: list[Exchange] = []

    def exposed_s(self, exchange: Exchange) -> float:
        """How long a step waits for its exchange."""
        end = late = 0.0
        for bucket, took, busy in zip(self.buckets, exchange.bucket_s, exchange.busy_s or repeat(0.0), strict=False):
            end = max(end, bucket.ready_s + late) + took
            late += busy
        return end - self.buckets[-1].ready_s

    def step_s(self, exchange: Exchange) -> float:
        """The predicted step."""
        return self.still_s + self.exposed_s(exchange)

    def efficiency(self, exchange: Exchange) -> float:
        """The predicted rate divided by that of a rank on its own."""
        return self.alone_s / self.step_s(exchange)

    def known_s(self, exchange: Exchange) -> float:
        """The step of the training run with it if there was one, otherwise the predicted step."""
        return exchange.checked_s or self.step_s(exchange)

    def reaches(self, exchange: Exchange) -> bool:
        """Whether `known_s` reaches the target."""
        return self.alone_s >= self.target * self.known_s(exchange)

    def recommended(self) -> Exchange | None:
        """The least lossy exchange that reaches the target, or else of those as fast as the fastest; of equals the first listed."""
        if not self.exchanges:
            return None
        fine = [one for one in self.exchanges if self.reaches(one)]
        if not fine:
            fastest = min(map(self.known_s, self.exchanges))
            fine = [one for one in self.exchanges if self.known_s(one) <= (1 + ALIKE) * fastest]
        return min(fine, key=lambda one: LEAST_FIRST.index(one.loss))
