"""What really ran: with which algorithm and protocol, over which connections and devices."""

from collections import Counter
from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.sizes import counted


class Kernel(msgspec.Struct, frozen=True):
    """What NCCL ran the operations of a row with; 0 channels are an unknown number."""

    algorithm: Annotated[str, Meta(description="Ring, Tree, NVLS ...")]
    protocol: Annotated[str, Meta(description="LL, LL128 or Simple")]
    channels: int = 0

    def __str__(self) -> str:
        """`Ring LL128, 4 channels`."""
        text = f"{self.algorithm} {self.protocol}"
        return f"{text}, {counted(self.channels, 'channel')}" if self.channels else text


class Connection(msgspec.Struct, frozen=True):
    """How one rank sends to another. Two ranks may have several connections, one of each
    transport.

    `transport` is NCCL's name of it: P2P/CUMEM, SHM/direct, NET/IB. `gdr` says whether the network
    reads and writes GPU memory itself (GPUDirect RDMA); None within a host, and over sockets.
    """

    sender: int
    receiver: int
    transport: str
    gdr: bool | None = None
    channels: int = 0
    devices: Annotated[
        list[str],
        Meta(description="network devices with their hosts, like node1:mlx5_0; empty if unknown"),
    ] = []

    @property
    def name(self) -> str:
        """The transport for people: `NET/IB without GDR`."""
        if self.gdr is None:
            return self.transport
        return f"{self.transport} {'with' if self.gdr else 'without'} GDR"


class Ran(msgspec.Struct):
    """What NCCL's log states of the connections between ranks.

    `rdma` are the RDMA devices that NCCL found on each host, also if it did not use them.
    """

    connections: list[Connection]
    rdma: dict[str, list[str]] = {}

    def transports(self) -> dict[str, int]:
        """How many pairs each transport connects, in both directions, by its name for people."""
        return dict(Counter(connection.name for connection in self.connections).most_common())
