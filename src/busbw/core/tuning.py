"""An algorithm, a protocol and a number of channels, as tuners of NCCL choose them."""

import msgspec

from busbw.core.pattern import ALGORITHMS, PROTOCOLS
from busbw.core.sizes import counted

# In the order of NCCL's numbers. NCCL asks tuners for no other collectives.
TUNED = ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce")


class TuningChoice(msgspec.Struct, frozen=True, order=True):
    """What NCCL runs a collective with: algorithm and protocol by NCCL's names, and the largest
    number of channels (0: NCCL's number).
    """

    algorithm: str
    protocol: str
    channels: int = 0

    def __str__(self) -> str:
        """`Ring LL128, 4 channels`."""
        text = f"{self.algorithm} {self.protocol}"
        return f"{text}, {counted(self.channels, 'channel')}" if self.channels else text

    @property
    def numbers(self) -> tuple[int, int]:
        """Row and column of NCCL's cost table."""
        return ALGORITHMS.index(self.algorithm), PROTOCOLS.index(self.protocol)
