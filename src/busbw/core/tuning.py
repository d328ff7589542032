"""What NCCL runs a collective with, as tuners choose it."""

import msgspec

from busbw.core.pattern import ALGORITHMS, PROTOCOLS

# in NCCL's numbers; it asks tuners for no others
TUNED = ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce")


class Choice(msgspec.Struct, frozen=True, order=True):
    """Algorithm and protocol by NCCL's names, and the most channels (0: NCCL's number)."""

    algorithm: str
    protocol: str
    channels: int = 0

    def __str__(self) -> str:
        """`Ring LL128, 4 channels`."""
        channels = (
            f", {self.channels} channel{'' if self.channels == 1 else 's'}" if self.channels else ""
        )
        return f"{self.algorithm} {self.protocol}{channels}"

    @property
    def numbers(self) -> tuple[int, int]:
        """Row and column of NCCL's cost table."""
        return ALGORITHMS.index(self.algorithm), PROTOCOLS.index(self.protocol)
