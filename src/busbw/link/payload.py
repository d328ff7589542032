"""How much data a link carries at its line rate, and the pass mark of a healthy link.

A packet of `mtu` bytes takes more on the wire: headers, checksum and, on Ethernet, preamble and
gap. Sizes are those of the formats: Ethernet 14 + 4 + 20 bytes (IEEE 802.3), IPv4 20, UDP 8, TCP 20
+ 12 with timestamps (RFC 7323), and of InfiniBand the base transport header 12 and the invariant
checksum 4, with 10 more on an InfiniBand link.
"""

from busbw.host.endpoints import ETHERNET, INFINIBAND, ROCE, Endpoint

_ETHERNET_BYTES = 14 + 4 + 20
_TCP_HEADERS = 20 + 20 + 12  # inside the MTU
# inside the interface's MTU, with the extended header of the first packet of a write
_ROCE_HEADERS = 20 + 8 + 12 + 16 + 4
_ROCE_BYTES = _ETHERNET_BYTES + 20 + 8 + 12 + 4
_IB_BYTES = 26
RDMA_MTUS = (4096, 2048, 1024, 512, 256)
HOST_MARK, GPU_MARK = 0.95, 0.90  # of the payload limit, from host and from GPU memory


def share(kind: str, mtu: int) -> float:
    """The share of the line rate that is data.

    `mtu` is the interface's for `ethernet` (TCP), the path's for `roce` and `ib`.
    """
    if kind == ETHERNET:
        return (mtu - _TCP_HEADERS) / (mtu + _ETHERNET_BYTES)
    return mtu / (mtu + {ROCE: _ROCE_BYTES, INFINIBAND: _IB_BYTES}[kind])


def rdma_mtu(interface_mtu: int) -> int | None:
    """The largest RDMA MTU that fits the MTU of a RoCE interface; None if none does."""
    return next((mtu for mtu in RDMA_MTUS if mtu + _ROCE_HEADERS <= interface_mtu), None)


def limit(
    sender: Endpoint,
    receiver: Endpoint,
    *,
    tcp: bool,
    mtu: int | None = None,
    line_rate: float | None = None,
) -> float | None:
    """The most data in bytes per second between two ports; None if a line rate or MTU is unknown,
    or the kinds differ.

    `mtu` is the RDMA MTU that the test reported. `line_rate` replaces a rate that the driver does
    not report.
    """
    rates = [one.rate or line_rate for one in (sender, receiver)]
    kinds = {ETHERNET if tcp else one.kind for one in (sender, receiver)}
    kind = kinds.pop()
    mtu = _mtu(kind, sender, receiver) if tcp or mtu is None else mtu
    known = [rate for rate in rates if rate]
    if kinds or len(known) < 2 or not mtu or kind not in (ETHERNET, ROCE, INFINIBAND):
        return None
    return min(known) * share(kind, mtu)


def _mtu(kind: str, sender: Endpoint, receiver: Endpoint) -> int | None:
    mtus = [one.mtu for one in (sender, receiver) if one.mtu]
    if len(mtus) < 2 or kind == INFINIBAND:  # the MTU of IPoIB is not that of RDMA
        return None
    return min(mtus) if kind == ETHERNET else rdma_mtu(min(mtus))


def mark(most: float, *, gpu: bool) -> float:
    """The rate in bytes per second at which a link passes."""
    return most * (GPU_MARK if gpu else HOST_MARK)
