"""The channels over which NCCL sends, and their speeds.

NCCL searches paths through a host and takes speeds from fixed lists. On a host where any GPU
reaches any other over one switch, the outcome follows only from the rates; this module computes
that case. It does not find paths around slow links inside a host. Source:
src/graph/search.cc, ncclTopoCompute and ncclTopoDupChannels, as of NCCL 2.27.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf

EPSILON = 1e-6  # GB/s; rates such as 18 x 20.6 are not exact
CHANNELS = 16  # half of NCCL's MAXCHANNELS of 32
NVLS_HEADS = 32  # NCCL_MAX_NVLS_ARITY
INTRA = (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3)
INTER = (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12)
INTRA_90 = (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3)
INTER_90 = (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12)
INTRA_100 = (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18)
INTER_100 = (96, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12)
SLOWEST = 0.1  # what NCCL falls back to where no list has a speed low enough


@dataclass(frozen=True, slots=True)
class ChannelGraph:
    """`channels`, each with `intra` GB/s inside a host and `inter` GB/s between hosts."""

    channels: int
    intra: float
    inter: float


@dataclass(frozen=True, slots=True)
class GraphHost:
    """One host as the search sees it, in GB/s: `link` of a GPU to the others, `rails` NICs of
    `rail` each (0 on a single host).
    """

    gpus: int
    sm: int
    link: float
    pcie: float
    rails: int = 0
    rail: float = 0.0
    multicast: bool = False

    @property
    def speeds(self) -> Sequence[float]:
        """NCCL's list for this GPU, from fast to slow, in GB/s."""
        if self.sm >= 100:
            return INTER_100 if self.rails else INTRA_100
        if self.sm >= 90:
            return INTER_90 if self.rails else INTRA_90
        return INTER if self.rails else INTRA

    @property
    def fastest(self) -> float:
        """The GB/s of the fastest path of one channel."""
        return self.rail if self.rails else self.link

    @property
    def total(self) -> float:
        """The GB/s of all links of a GPU."""
        return max(self.link if self.gpus > 1 else 0.0, self.pcie)

    def over_link(self, speed: float) -> float:
        """How many channels of `speed` fit a GPU's link if each passes through it once."""
        return floor((self.link + EPSILON) / speed) if self.gpus > 1 else inf

    def over_rails(self, speed: float) -> float:
        """How many channels of `speed` fit the NICs."""
        return self.rails * floor((self.rail + EPSILON) / speed) if self.rails else inf


def ring(host: GraphHost) -> ChannelGraph:
    """A ring's channels: it passes each GPU's link once, and returns to the GPU of its NIC."""

    def count(speed: float) -> int:
        return int(min(CHANNELS, host.over_link(speed), host.over_rails(speed)))

    channels, speed = _best(host, count)
    return _double(ChannelGraph(channels, speed, speed), host.sm)


def tree(host: GraphHost, channels: int) -> ChannelGraph:
    """As many channels as the ring has.

    A chain of P GPUs has P - 1 hops, so a GPU's link carries (P-1)/P of them.
    """
    share = (host.gpus - 1) / host.gpus

    def fits(intra: float, inter: float) -> bool:
        within = channels * intra * share <= host.link + EPSILON
        return within and channels <= host.over_rails(inter)

    possible = [speed for speed in host.speeds if speed <= host.fastest + EPSILON]
    inter = next((speed for speed in possible if fits(speed, speed)), SLOWEST)
    intra = inter
    for faster in _faster_speeds(host, inter):
        if intra >= 2 * inter or not fits(faster, inter):
            break
        intra = faster
    return ChannelGraph(channels, intra, inter)


def nvls(host: GraphHost) -> ChannelGraph | None:
    """The channels of NVLink SHARP, each with a GPU as its head; None without multicast.

    Every GPU sends its share of each channel, and the head receives and sends the sum: n channels
    load a head's link n + 1 times.
    """
    heads = min(NVLS_HEADS, host.gpus)
    if not host.multicast or heads < 2:
        return None
    if not host.rails:
        per_channel = host.link / (heads + 1) + EPSILON
        speed = next((speed for speed in host.speeds if speed <= per_channel), SLOWEST)
        return ChannelGraph(heads, speed, speed)

    def count(speed: float) -> int:
        return int(max(0, min(heads, host.over_link(speed) - 1, host.over_rails(speed))))

    channels, speed = _best(host, count)
    inter = speed
    for faster in _faster_speeds(host, speed):
        if inter >= 2 * speed or channels > host.over_rails(faster):
            break
        inter = faster
    return ChannelGraph(channels, speed, inter)


def _best(host: GraphHost, count: Callable[[float], int]) -> tuple[int, float]:
    """The channels and the speed with the highest product; `count` is the channels of a speed.

    The search ends at half of the best speed, or when all links are used.
    """
    best_channels, best_speed = 0, 0.0
    for speed in host.speeds:
        if speed > host.fastest + EPSILON:
            continue
        if best_channels and speed / best_speed <= 0.49:
            break
        channels = count(speed)
        if channels * speed > best_channels * best_speed + EPSILON:
            best_channels, best_speed = channels, speed
        if best_channels * best_speed >= host.total - EPSILON:
            break
    return (best_channels, best_speed) if best_channels else (1, SLOWEST)


def _double(graph: ChannelGraph, sm: int) -> ChannelGraph:
    """Twice as many channels of half the speed, where NCCL makes them."""
    if graph.intra < 25 or (sm > 80 and graph.intra < 50 and graph.channels > 4):
        return graph
    channels = min(2 * graph.channels, CHANNELS)
    parts = ceil(channels / graph.channels)
    return ChannelGraph(channels, graph.intra / parts, graph.inter / parts)


def _faster_speeds(host: GraphHost, speed: float) -> list[float]:
    return sorted(faster for faster in host.speeds if faster > speed)
