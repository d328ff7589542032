"""The NICs next to each GPU, over which it receives from other hosts, and sends to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from busbw.core.alltoallv import Traffic
from busbw.core.sizes import counted
from busbw.model.fabric import Fabric, gb


@dataclass(frozen=True, slots=True)
class LeastTime:
    """The least time in seconds, and the formula with its numbers and the link that binds."""

    time_s: float
    text: str


@dataclass(frozen=True, slots=True)
class OwnNics:
    """The NICs next to each GPU of a host with `per_host` ranks, numbered host by host.

    The GPUs of a host share its `nics` evenly, in order: of 4 for 8 GPUs, two have one.
    """

    fabric: Fabric
    nics: int

    @property
    def groups(self) -> int:
        """The groups of a host's GPUs that share no NIC with others."""
        return gcd(self.nics, self.fabric.per_host)

    @property
    def size(self) -> int:
        """The GPUs of a group."""
        return self.fabric.per_host // self.groups

    def least(self, between: int) -> LeastTime | None:
        """The time of `between` bytes into a group, or out of it; None if nothing moves, or the
        rate is not known.
        """
        link = f"{self.fabric.nic_link}, 1/{self.groups} for {counted(self.size, 'GPU')}"
        return least_time("Z/R", between, self.fabric.nics / self.groups, link)

    def least_of(self, traffic: Traffic) -> LeastTime | None:
        """The time of the group that sends the most to other hosts, or receives the most."""
        return self.least(max(self._most(traffic.sent_out), self._most(traffic.received_in)))

    def least_of_nccl(self, traffic: Traffic) -> LeastTime | None:
        """The same for NCCL's sends and receives.

        Where NVLink joins the GPUs of a host, a rank sends over the NIC that has the receiver's
        place (ncclTopoGetNetDev with NCCL_P2P_PXN_LEVEL=2, the default), so what one rank sends
        to several can use all NICs. Receivers still have their own alone.
        """
        if not self.fabric.over_nvlink:
            return self.least_of(traffic)
        return self.least(self._most(traffic.received_in))

    def _most(self, of_rank: Sequence[int]) -> int:
        """The bytes of the busiest group, from those of each rank."""
        starts = range(0, len(of_rank), self.size)
        return max((sum(of_rank[start : start + self.size]) for start in starts), default=0)


def least_time(letters: str, size_bytes: int, rate: float | None, link: str) -> LeastTime | None:
    """The time of so many bytes over a link; None if there are none, or its rate is not known."""
    if not rate or not size_bytes:
        return None
    text = f"{letters} = {size_bytes / 1e6:.4g} MB / {gb(rate)} GB/s: {link}"
    return LeastTime(size_bytes / rate, text)
