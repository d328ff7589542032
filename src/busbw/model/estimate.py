"""The time that NCCL's model expects of one operation on a described system.

Which algorithm and protocol run is NCCL's decision, by the constants of the release that runs. How
long they take is a question of hardware, so the time comes from the latest constants. From 1 GiB on
these are within 1.9 % on 2 x 8 H100 with NCCL 2.21.5, whose own are 7 to 11 % too fast.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import log2

from busbw.core.alltoallv import Traffic
from busbw.core.collectives import BY_NAME, Collective
from busbw.model.bounds import P2P, bounds, tree_share
from busbw.model.fabric import Fabric
from busbw.model.nccl import p2p
from busbw.model.nccl.choice import (
    COLLECTIVES,
    ROOTED,
    US,
    AllowedAlgorithms,
    ExpectedChoice,
    Parts,
    choices,
    parts,
)
from busbw.model.nccl.constants import NVLS, NVLS_TREE, RING, SIMPLE, TREE, Release, fitted_release
from busbw.model.nccl.nvls_types import allowed_for, by_precision
from busbw.model.own_nics import OwnNics
from busbw.model.spine import Spine
from busbw.model.systems import System

BOARD = 8  # GPUs
# What NVLSTree reached of NCCL's model on 4 to 32 hosts of 8 H100: 0.88 to 1.09 in six clusters.
OF_NVLS_TREE = 0.93
NVLS_CTAS = 16  # src/enqueue.cc of 2.30.7: NVLS needs no more for its peak
LARGE_BYTES = 1 << 30  # of which any matrix moves some
# What it reached on 2 and 20 racks of GB200 and GB300, of the rate inside one: 0.74 to 0.92.
OF_RACKS = 0.85
OF_NICS = 0.95  # what NVLSTree reached of the NICs' rate on 2 x 8 B200: 0.93 and 0.98


@dataclass(frozen=True, slots=True)
class EstimateInputs:
    """What an estimate depends on besides the operation."""

    system: System
    release: Release = field(default_factory=fitted_release)
    may: AllowedAlgorithms = field(default_factory=AllowedAlgorithms)
    # may divide the rate of the NICs, of which NCCL does not know
    spine: Spine = field(default_factory=Spine)
    # (hosts, bytes) to what an alltoallv moves between ranks numbered host by host; None for an
    # even exchange
    traffic: Callable[[int, int], Traffic | None] | None = None
    dtype: str = "float"  # a name of core.dtypes
    op: str = "sum"  # a name of core.redops
    # of a send: hosts of its communicator, and ranks on each; None for a measured sendrecv
    comm: tuple[int, int] | None = None
    # most channels that NCCL may use, which does not change its choice; 0: any number
    ctas: int = 0

    def allowed(self, collective: str) -> AllowedAlgorithms:
        return allowed_for(self.may, collective, self.dtype, self.op)

    def choices(
        self, collective: str, hosts: int, per_host: int, size_bytes: int
    ) -> list[ExpectedChoice]:
        """What NCCL may use, in its order of preference."""
        model = self.system.model(self.release, hosts, per_host)
        possible = choices(model, collective, size_bytes, self.allowed(collective))
        return by_precision(possible, self.dtype, hosts * per_host)

    def traffic_at(self, hosts: int, size_bytes: int) -> Traffic | None:
        """What an alltoallv moves between the ranks; None for an even exchange."""
        return self.traffic(hosts, size_bytes) if self.traffic else None

    def fabric(
        self, hosts: int, per_host: int, size_bytes: int, *, payload: bool = False
    ) -> Fabric:
        """The system's links, at what they carry of data with `payload`, for so many bytes."""
        links = self.system.fabric(hosts, per_host, payload=payload)
        return replace(links, traffic=self.traffic_at(hosts, size_bytes))

    def has_own_matrix(self, hosts: int) -> bool:
        """Whether an alltoallv moves the bytes of another matrix than nccl-tests' own."""
        traffic = self.traffic_at(hosts, LARGE_BYTES)
        return traffic is not None and bool(traffic.source)

    def spine_share(self, collective: str, algorithm: str, hosts: int) -> float:
        """The share of the traffic between hosts that crosses the spine. Of an alltoallv with a
        matrix of its own it is taken to be all, unless all hosts are under one leaf.
        """
        share = self.spine.share(collective, algorithm, hosts)
        return 1.0 if share and self.has_own_matrix(hosts) else share

    def nic_divisor(self, collective: str, algorithm: str, hosts: int, per_host: int) -> float:
        """What the spine divides the rate of the NICs by."""
        share = self.spine_share(collective, algorithm, hosts)
        if hosts == 1 or not self.spine.limits(share):
            return 1.0
        flows = flows_of_nic(self, collective, algorithm, hosts, per_host)
        return self.spine.divisor(share, flows, hosts, self.system.nics_of(per_host))


def estimate(
    setting: EstimateInputs, collective: str, hosts: int, per_host: int, size_bytes: int
) -> ExpectedChoice | None:
    """The algorithm, the protocol and the time; None where no algorithm can run, as with one rank,
    or with NVLS alone on several hosts.

    A collective that NCCL builds of sends and receives has its point-to-point bound as its rate,
    which the channels of a send between hosts and a GPU's own NICs may limit, and the latency of
    its messages.
    """
    if hosts * per_host < 2:
        return None
    row = BY_NAME[collective]
    possible = setting.choices(collective, hosts, per_host, size_bytes)
    if not possible and collective in COLLECTIVES:
        return None
    if not possible:
        return _exchange(setting, row, hosts, per_host, size_bytes)
    chosen = possible[0]
    model = setting.system.as_timed().model(fitted_release(), hosts, per_host)
    latest = parts(model, collective, size_bytes, chosen.algorithm, chosen.protocol)
    timed = latest or chosen.parts
    if setting.nic_divisor(collective, chosen.algorithm, hosts, per_host) > 1:
        timed = _slow_down(setting, row, hosts, per_host, size_bytes, replace(chosen, parts=timed))
    return replace(chosen, parts=timed)


def by_links(
    setting: EstimateInputs, collective: str, hosts: int, per_host: int, size_bytes: int
) -> ExpectedChoice | None:
    """NCCL's choice, with the time that its links allow where NCCL's model is known to be wrong:
    NVLSTree, and the latency of broadcast and reduce over several hosts.
    """
    chosen = estimate(setting, collective, hosts, per_host, size_bytes)
    if chosen is None or hosts == 1:
        return chosen
    if chosen.algorithm == RING and collective in ROOTED:
        return _through_all_ranks(setting, hosts, per_host, size_bytes, chosen)
    if (chosen.algorithm, chosen.protocol) == (TREE, SIMPLE) and size_bytes:
        return _tree_by_links(setting, collective, (hosts, per_host), size_bytes, chosen)
    if chosen.algorithm == NVLS and size_bytes:
        return _by_slower_links(setting, collective, (hosts, per_host), size_bytes, chosen)
    if chosen.algorithm == NVLS_TREE and size_bytes:
        if hosts == 2 or per_host > BOARD:
            return _by_slower_links(setting, collective, (hosts, per_host), size_bytes, chosen)
        transfer_s = chosen.parts.transfer_s / OF_NVLS_TREE
        return replace(chosen, parts=replace(chosen.parts, transfer_s=transfer_s))
    return chosen


def _through_all_ranks(
    setting: EstimateInputs, hosts: int, per_host: int, size_bytes: int, chosen: ExpectedChoice
) -> ExpectedChoice:
    """A ring from or to a root with the latency of all its hops, as that of an all_gather. NCCL
    counts one hop where a host has one NIC, and with several every hop as one between hosts.
    """
    model = setting.system.model(fitted_release(), hosts, per_host)
    through = parts(model, "all_gather", size_bytes, RING, chosen.protocol)
    if through is None:
        return chosen
    return replace(chosen, parts=replace(chosen.parts, latency_s=through.latency_s))


def _tree_by_links(
    setting: EstimateInputs,
    collective: str,
    shape: tuple[int, int],
    size_bytes: int,
    chosen: ExpectedChoice,
) -> ExpectedChoice:
    """Tree with Simple on several hosts, at no less than OF_NICS of its bound. NCCL's limit per
    channel makes it slower: 3 x 4 and 3 x 8 GB200 reach 234 and 486 GB/s (NVIDIA/nccl issue 1801),
    where its model has 162 and 184.
    """
    row = BY_NAME[collective]
    narrow = narrow_links(setting, collective, TREE, *shape)
    limits = {
        bound.algorithm: bound.busbw for bound in bounds(row, narrow, setting.system.features())
    }
    moved = size_bytes * float(row.bus_factor(shape[0] * shape[1]))
    least_s = moved / (limits[TREE] * OF_NICS)
    transfer_s = min(chosen.parts.transfer_s, least_s)
    return replace(chosen, parts=replace(chosen.parts, transfer_s=transfer_s))


def _by_slower_links(
    setting: EstimateInputs,
    collective: str,
    shape: tuple[int, int],
    size_bytes: int,
    chosen: ExpectedChoice,
) -> ExpectedChoice:
    """NVLSTree on two hosts, where each byte crosses the network once, and on racks, and NVLS over
    switches that reduce, at the rate of the slower links.

    NCCL's search gives a channel one speed inside and between hosts, so its model has 497 GB/s for
    2 x 8 B200, which reach 684 and 718. From three racks on, the GPUs of one inside the trees send
    up and down what they reduce: 20 racks of GB200 reach half of what two do. The latency grows
    with the logarithm of the hosts, which NCCL rounds down.
    """
    hosts, per_host = shape
    row = BY_NAME[collective]
    alone = parts(
        setting.system.model(fitted_release(), 1, per_host), collective, size_bytes, NVLS, SIMPLE
    )
    if alone is None:
        return chosen
    # With reduction in the network's switches (NVLS on several hosts), there is no tree.
    share = 1.0 if chosen.algorithm == NVLS else tree_share(hosts)
    inside = size_bytes * float(row.bus_factor(per_host)) / alone.transfer_s
    if per_host > BOARD:
        inside *= OF_RACKS * share
    factor = float(row.bus_factor(hosts * per_host))
    narrow = narrow_links(setting, collective, chosen.algorithm, hosts, per_host)
    between = narrow.nics * share * factor * OF_NICS
    transfer_s = size_bytes * factor / min(inside, between)
    if chosen.algorithm == NVLS:
        return replace(chosen, parts=Parts(chosen.parts.latency_s, transfer_s))
    levels_s = (chosen.parts.latency_s - alone.latency_s) * log2(hosts) / int(log2(hosts))
    return replace(chosen, parts=Parts(alone.latency_s + levels_s, transfer_s))


def _slow_down(
    setting: EstimateInputs,
    row: Collective,
    hosts: int,
    per_host: int,
    size_bytes: int,
    choice: ExpectedChoice,
) -> Parts:
    """The time with a transfer no faster than the algorithm's bound over the part of the NICs
    that the network lets through.
    """
    narrow = narrow_links(setting, row.name, choice.algorithm, hosts, per_host)
    limits = [
        bound.busbw
        for bound in bounds(row, narrow, setting.system.features())
        if bound.algorithm == choice.algorithm
    ]
    least_s = size_bytes * float(row.bus_factor(hosts * per_host)) / limits[0] if limits else 0.0
    return Parts(choice.parts.latency_s, max(choice.parts.transfer_s, least_s))


def narrow_links(
    setting: EstimateInputs, collective: str, algorithm: str, hosts: int, per_host: int
) -> Fabric:
    """The links at what they carry of data, the NICs divided by what the spine lets through."""
    fabric = setting.system.fabric(hosts, per_host, payload=True)
    divisor = setting.nic_divisor(collective, algorithm, hosts, per_host)
    return replace(fabric, nics=fabric.nics / divisor, rail=fabric.rail / divisor)


def _exchange(
    setting: EstimateInputs, row: Collective, hosts: int, per_host: int, size_bytes: int
) -> ExpectedChoice | None:
    traffic = setting.traffic_at(hosts, size_bytes)
    narrowed = replace(narrow_links(setting, row.name, P2P, hosts, per_host), traffic=traffic)
    if row.name in p2p.ALL_PAIRS and hosts > 1:
        reached = setting.system.fabric(hosts, per_host, payload=True).nics
        reached *= p2p.alltoall_share(per_host)
        narrowed = replace(narrowed, nics=min(narrowed.nics, reached))
    bound = next(iter(bounds(row, narrowed, setting.system.features())), None)
    if bound is None or bound.busbw <= 0:
        return None
    rate = bound.busbw
    if row.name == p2p.PAIRS and hosts > 1:
        rate = min(rate, channels_of_send(setting, hosts, per_host) * p2p.CHANNEL_RATE)
    if row.name == p2p.TO_ROOT and hosts > 1:
        rate = min(rate, p2p.into_root(narrowed))
    factor = float(row.bus_factor(hosts * per_host))
    if traffic is not None and hosts > 1:
        own = OwnNics(narrowed, setting.system.nics_of(per_host)).least_of_nccl(traffic)
        rate = min(rate, traffic.size_bytes * factor / own.time_s) if own else rate
    model = setting.system.model(setting.release, hosts, per_host)
    latency_s = p2p.latency_us(model, row.name) * US
    return ExpectedChoice(P2P, "Simple", Parts(latency_s, size_bytes * factor / rate))


def flows_of_nic(
    setting: EstimateInputs, collective: str, algorithm: str, hosts: int, per_host: int
) -> int:
    """The connections of one NIC that carry data at once: one queue pair for each channel to the
    next host of a ring, and to each neighbor in both trees, each of which has half of the channels;
    or one for each host that a rank sends to.
    """
    if algorithm != P2P:
        channels = setting.system.model(fitted_release(), hosts, per_host).ring.channels
        neighbors = 1 if algorithm == RING else 1 / tree_share(hosts)
        return max(1, round(channels * neighbors / setting.system.nics_of(per_host)))
    if collective == p2p.PAIRS:
        return channels_of_send(setting, hosts, per_host)
    return hosts - 1


def channels_left(setting: EstimateInputs, algorithm: str, hosts: int, per_host: int) -> float:
    """The part of an algorithm's channels that `ctas` leaves; 1 for sends, which have their own."""
    if not setting.ctas or algorithm == P2P:
        return 1.0
    own = NVLS_CTAS
    if algorithm not in (NVLS, NVLS_TREE):
        own = setting.system.model(fitted_release(), hosts, per_host).ring.channels
    return min(1.0, setting.ctas / own)


def channels_of_send(setting: EstimateInputs, hosts: int, per_host: int) -> int:
    """Channels of a send between hosts, as the release that runs decides."""
    release, peers = setting.release, p2p.peers_of_sendrecv(setting.release, hosts * per_host)
    if setting.comm is not None:
        hosts, per_host = setting.comm
        peers = hosts * per_host
    model = setting.system.model(release, hosts, per_host)
    return p2p.channels_of_send(model, setting.system.planned_rail(per_host), peers)
