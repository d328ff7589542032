"""What NCCL builds of sends and receives: the channels of a send to another host, and what each
message costs.

NCCL's cost model does not cover these. The channels follow from src/graph/paths.cc
(ncclTopoGetNchannels, ncclTopoComputeP2pChannels) of 2.20.5 to 2.30.7. The costs are assumptions
with a source each, stated in docs/explanation/the-model.md.
"""

from math import ceil, log2

from busbw.model.fabric import Fabric
from busbw.model.nccl.choice import Model
from busbw.model.nccl.constants import (
    NET,
    NET_OVERHEAD_US,
    NVLINK,
    PCI,
    RING,
    Release,
    fitted_release,
)

# NCCL_P2P_PER_CHANNEL_NET_BW of 2.29 on. 8 to 32 hosts of 8 B200, NCCL 2.29.7: 13.1 with two
# channels and 14.5 with one (sendrecv_perf, 64 MiB). Hosts of 4 GH200, one channel: 18.3 (issue
# 1272).
CHANNEL_RATE = 14e9
TASKS_OF_CHANNEL = 8  # NCCL_MAX_DEV_WORK_P2P_PER_BATCH
CHANNELS_BEFORE_2_29 = 2
CHANNELS_OVER_PCIE = 2
PEERS_OF_SENDRECV = 2  # what nccl-tests and busbw tell NCCL from 2.30 on
PEERS_TOLD_SINCE = (2, 30)
# Of one more peer on the same host: alltoall of 1 KiB with 8 GPUs takes 0.2 to 0.9 us a peer longer
# than with 2, on A100, H100 and B200 (ai-dynamo/aiconfigurator, NCCL 2.27.3 to 2.29.2).
LOCAL_MESSAGE_US = 0.4
SIMPLE_AT = 2
ALL_PAIRS = ("alltoall", "alltoallv")
# Of the NICs' rate, what alltoall reaches: between hosts of up to 8 GPUs the median of seven runs,
# one of which reached 54 % and the others 87 to 98 %; between racks the middle of 25, 67 and 86 %.
ALLTOALL_OF_NICS, ALLTOALL_OF_RACKS = 0.91, 0.55
HOST_GPUS = 8  # of the largest hosts whose GPUs NVLink joins, beside racks
PAIRS, ROUNDS, TO_ROOT = "sendrecv", "hypercube", "gather"


def alltoall_share(per_host: int) -> float:
    """What alltoall reaches between hosts, or racks, of the rate of their NICs."""
    return ALLTOALL_OF_NICS if per_host <= HOST_GPUS else ALLTOALL_OF_RACKS


def peers_of_sendrecv(release: Release, ranks: int) -> int:
    """How many peers NCCL's model takes a sendrecv to have: PEERS_OF_SENDRECV from 2.30 on."""
    return min(ranks, PEERS_OF_SENDRECV) if release.first >= PEERS_TOLD_SINCE else ranks


def channels_of_send(model: Model, rail: float, peers: int) -> int:
    """Channels of a send to a rank on another host, over NICs of `rail` bytes a second."""
    total = _power_of_two(2 * model.ring.channels)
    if not model.release.p2p_by_rate:
        channels = CHANNELS_BEFORE_2_29
        while channels > 1 and channels * peers > 4 * total:
            channels //= 2
        return min(channels, total)
    channels = max(1, ceil(int(rail / 1e9) / (CHANNEL_RATE / 1e9)))
    if model.per_host > 1 and not model.over_nvlink:
        channels = min(channels, CHANNELS_OVER_PCIE)
    channels = _power_of_two(channels)
    while channels > 1 and channels * ceil(peers / TASKS_OF_CHANNEL) > total:
        channels //= 2
    return channels


def into_root(fabric: Fabric) -> float:
    """The busbw at which the root of a gather can receive what comes from other hosts.

    Each sender takes the NIC nearest to the root, through the GPU next to it if that is not its own
    (ncclTopoGetNetDev, PXN), so the other NICs of the root's host carry nothing. 2 x 8 B200 with
    8 x 400 Gbit/s, NCCL 2.29: 90.5, and 92 to 95.4 on another cluster.
    """
    nearest = max(fabric.nics / fabric.per_host, fabric.rail)
    return nearest * (fabric.ranks - 1) / (fabric.ranks - fabric.per_host)


def _power_of_two(number: int) -> int:
    """The smallest power of two that is not below the number."""
    return 1 << max(number - 1, 0).bit_length()


def latency_us(model: Model, collective: str) -> float:
    """What does not depend on the size: one kernel and one hop, and each further message of the
    rank that has the most.

    A message to another host costs NCCL's overhead of posting it. A hypercube has a kernel for each
    round.
    """
    within, between = _of_first(model, hosts=1), _of_first(model, hosts=2)
    first = within if model.hosts == 1 else between
    if collective == PAIRS:
        return first
    if collective == ROUNDS:
        inside = log2(model.per_host)
        return inside * within + (log2(model.ranks) - inside) * between
    local, remote = model.per_host - 1, model.ranks - model.per_host
    if model.hosts == 1:
        local -= 1
    else:
        remote -= 1
    return first + local * LOCAL_MESSAGE_US + remote * NET_OVERHEAD_US[model.cpu]


def _of_first(model: Model, hosts: int) -> float:
    """The kernel and the first message."""
    inside = NVLINK if model.over_nvlink else PCI
    link = NET if hosts > 1 else inside
    return fitted_release().base[RING][SIMPLE_AT] + fitted_release().hops[link][RING][SIMPLE_AT]
