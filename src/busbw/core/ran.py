"""What really ran: with which algorithm and protocol, over which connections and devices."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.sizes import counted

# In place of an algorithm, for what runs none of NCCL's; alltoall, gather and scatter are sends.
SYMMETRIC, COPY_ENGINE, SENDS = "Symmetric", "CopyEngine", "SendRecv"


class Kernel(msgspec.Struct, frozen=True):
    """What NCCL ran the operations of a row with; 0 channels are an unknown number."""

    algorithm: Annotated[
        str,
        Meta(
            description="Ring, Tree, NVLS, NVLSTree, CollNetDirect, CollNetChain or PAT; Symmetric"
            " for a kernel over symmetric memory, CopyEngine, or SendRecv for sends and receives"
        ),
    ]
    protocol: Annotated[str, Meta(description="LL, LL128 or Simple; empty if NCCL names none")]
    channels: int = 0
    variant: Annotated[str, Meta(description="NCCL's name of a kernel over symmetric memory")] = ""

    def __str__(self) -> str:
        """`Ring LL128, 4 channels`."""
        text = " ".join(filter(None, (self.algorithm, self.protocol, self.variant)))
        return f"{text}, {counted(self.channels, 'channel')}" if self.channels else text

    def same(self, other: "Kernel") -> bool:
        """Whether both are alike in all that both state: old logs have no channels."""
        channels = 0 in (self.channels, other.channels) or self.channels == other.channels
        names = (self.algorithm, self.protocol, self.variant)
        return channels and names == (other.algorithm, other.protocol, other.variant)


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
    """What NCCL's logs state of the connections between ranks.

    `rdma` are the RDMA devices that NCCL found on each host, also if it did not use them.
    """

    connections: list[Connection]
    rdma: dict[str, list[str]] = {}

    def transports(self) -> dict[str, int]:
        """How many pairs each transport connects, in both directions, by its name for people."""
        return dict(Counter(connection.name for connection in self.connections).most_common())


def merged(parts: Iterable[Ran | None]) -> Ran | None:
    """What the logs of several processes state together; None if none names a connection. Both
    ends name a connection over a network.
    """
    found: dict[tuple[int, int, str], list[Connection]] = defaultdict(list)
    rdma: dict[str, list[str]] = {}
    for part in parts:
        for connection in part.connections if part else ():
            key = connection.sender, connection.receiver, connection.transport
            found[key].append(connection)
        rdma |= part.rdma if part else {}
    if not found:
        return None
    return Ran([_joined(found[key]) for key in sorted(found)], dict(sorted(rdma.items())))


def _joined(ends: Sequence[Connection]) -> Connection:
    """One connection as its ends state it."""
    first, direct = ends[0], [end.gdr for end in ends if end.gdr is not None]
    devices = {device for end in ends for device in end.devices}
    return Connection(
        first.sender,
        first.receiver,
        first.transport,
        all(direct) if direct else None,
        max(end.channels for end in ends),
        sorted(devices),
    )
