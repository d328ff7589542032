"""What really ran: with which algorithm and protocol, over which connections and devices."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.sizes import counted

# In place of an algorithm, for what runs none of NCCL's; alltoall, gather and scatter are sends.
SYMMETRIC, COPY_ENGINE, SENDS = "Symmetric", "CopyEngine", "SendRecv"
MAX_LISTED = 4096  # connections of a result


class NcclKernel(msgspec.Struct, frozen=True):
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
    variant: Annotated[
        str, Meta(description="NCCL's name of a kernel over symmetric memory, if it is known")
    ] = ""

    @property
    def form(self) -> str:
        """The protocol, or the name of a kernel over symmetric memory without its collective:
        AGxLL_R of AllReduce_AGxLL_R.
        """
        collective, _, form = self.variant.partition("_")
        return self.protocol or form or collective

    @property
    def uses_gin(self) -> bool:
        """Whether the kernel itself sends over a network (GIN: GPU-initiated networking)."""
        return "_Rail" in self.variant  # AllGather_RailRing_LsaSTMC: NCCL's src/sym_kernels.cc

    def __str__(self) -> str:
        """`Ring LL128, 4 channels`."""
        text = " ".join(filter(None, (self.algorithm, self.protocol, self.variant)))
        return f"{text}, {counted(self.channels, 'channel')}" if self.channels else text

    def same(self, other: "NcclKernel") -> bool:
        """Whether both are alike in all that both state: old logs have no channels, and symmetric
        kernels may have no name.
        """
        channels = 0 in (self.channels, other.channels) or self.channels == other.channels
        variants = "" in (self.variant, other.variant) or self.variant == other.variant
        names = (self.algorithm, self.protocol)
        return channels and variants and names == (other.algorithm, other.protocol)


class NcclConnection(msgspec.Struct, frozen=True):
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
        return _name(self.transport, self.gdr)

    @property
    def slow(self) -> bool:
        """Whether it may be a fallback: SHM, a network without GDR, or sockets."""
        is_known_slow = self.transport.startswith("SHM/") or self.transport == "NET/Socket"
        return is_known_slow or self.gdr is False


class UnlistedConnections(msgspec.Struct, frozen=True):
    """Connections of one transport that are counted only, and all their network devices."""

    transport: str
    gdr: bool | None
    devices: Annotated[list[str], Meta(description="network devices, without their hosts")]
    connections: int

    @property
    def name(self) -> str:
        return _name(self.transport, self.gdr)


def _name(transport: str, gdr: bool | None) -> str:
    if gdr is None:
        return transport
    return f"{transport} {'with' if gdr else 'without'} GDR"


class LoggedConnections(msgspec.Struct):
    """What NCCL's logs state of the connections between ranks.

    `rdma` are the RDMA devices that NCCL found on each host, also if it did not use them.
    """

    connections: Annotated[
        list[NcclConnection],
        Meta(
            description=f"all, if they are at most {MAX_LISTED}; else only those over SHM, sockets"
            " or a network without GDR, and at most as many"
        ),
    ]
    rdma: dict[str, list[str]] = {}
    unlisted: Annotated[
        list[UnlistedConnections], Meta(description="how many connections are not in `connections`")
    ] = []

    def transports(self) -> dict[str, int]:
        """How many pairs each transport connects, in both directions, by its name for people."""
        counts = Counter(connection.name for connection in self.connections)
        for row in self.unlisted:
            counts[row.name] += row.connections
        return dict(counts.most_common())


def counts(connections: Iterable[NcclConnection]) -> list[UnlistedConnections]:
    """How many connections each transport has, and over which devices."""
    return _summed(map(_one, connections))


def _one(connection: NcclConnection) -> UnlistedConnections:
    names = {device.rpartition(":")[2] for device in connection.devices}
    return UnlistedConnections(connection.transport, connection.gdr, sorted(names), 1)


def _summed(
    rows: Iterable[UnlistedConnections], listed: Iterable[NcclConnection] = ()
) -> list[UnlistedConnections]:
    """One row for each transport, those with most connections first, without those `listed`."""
    numbers: Counter[tuple[str, bool | None]] = Counter()
    devices: dict[tuple[str, bool | None], set[str]] = defaultdict(set)
    for row in rows:
        key = row.transport, row.gdr
        numbers[key] += row.connections
        devices[key].update(row.devices)
    for connection in listed:
        key = connection.transport, connection.gdr
        # Only the receiver may have said that GDR is not used.
        numbers[key if numbers[key] > 0 else (connection.transport, True)] -= 1
    return [
        UnlistedConnections(*key, sorted(devices[key]), number)
        for key, number in numbers.most_common()
        if number > 0
    ]


def merged(
    parts: Iterable[LoggedConnections | None], sends: Sequence[UnlistedConnections] = ()
) -> LoggedConnections | None:
    """What the logs of several processes state together; None if none names a connection. Both
    ends name a connection over a network.

    Where parts do not list all connections, `sends` count all, each at its sender. Only slow ones
    are listed if there are very many: their number grows with the square of the ranks.
    """
    found: dict[tuple[int, int, str], list[NcclConnection]] = defaultdict(list)
    rdma: dict[str, list[str]] = {}
    for part in parts:
        for connection in part.connections if part else ():
            key = connection.sender, connection.receiver, connection.transport
            found[key].append(connection)
        rdma |= part.rdma if part else {}
    if not found and not sends:
        return None
    connections = [_joined(found[key]) for key in sorted(found)]
    ran = LoggedConnections(connections, dict(sorted(rdma.items())))
    if sends or len(connections) > MAX_LISTED:
        ran.connections = [row for row in connections if row.slow][:MAX_LISTED]
        ran.unlisted = _summed(sends or map(_one, connections), ran.connections)
    return ran


def _joined(ends: Sequence[NcclConnection]) -> NcclConnection:
    first, direct = ends[0], [end.gdr for end in ends if end.gdr is not None]
    devices = {device for end in ends for device in end.devices}
    return NcclConnection(
        first.sender,
        first.receiver,
        first.transport,
        all(direct) if direct else None,
        max(end.channels for end in ends),
        sorted(devices),
    )
