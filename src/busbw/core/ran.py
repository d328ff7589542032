"""What really ran: how ranks were connected, and over which network devices."""

from collections import Counter
from typing import Annotated

import msgspec
from msgspec import Meta


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
