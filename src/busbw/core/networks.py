"""The table of networks that NCCL can be told to use: the word for --net, NCCL's own name, and the variables that choose it."""

from collections.abc import Mapping
from dataclasses import dataclass

LIBRARY_VARIABLE = "NCCL_NET_PLUGIN"


@dataclass(frozen=True, slots=True)
class Network:
    """One network. `nccl` is how NCCL calls it, in NCCL_NET and in its log; `variables` choose it, besides the path of a `plugin`."""

    name: str
    nccl: str
    meaning: str
    variables: dict[str, str]
    plugin: bool = False


# NCCL_NET alone decides; NCCL fails where it cannot have that network. The other variables undo what the environment says against it:
# a switched-off IB, or an image's own libnccl-net.so, whose tuner NCCL would take even where it does not take its network.
NETWORKS: tuple[Network, ...] = (
    # Without the count, NCCL 2.28 and 2.29 forget the plugin once the last communicator is destroyed, and the next one goes without.
    Network(
        "busbw", "busbw", "busbw's plugin: many TCP streams (package busbw-native)",
        {"NCCL_NET": "busbw", "NCCL_NET_PLUGIN_REF_COUNT": "1"}, plugin=True,
    ),
    Network(
        "socket", "Socket", "NCCL's own TCP sockets", {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1", LIBRARY_VARIABLE: "none"}
    ),
    Network("ib", "IB", "NCCL's own InfiniBand and RoCE", {"NCCL_NET": "IB", "NCCL_IB_DISABLE": "0", LIBRARY_VARIABLE: "none"}),
)  # fmt: skip
# Whoever has set one of these has chosen channels.
CHANNEL_VARIABLES = ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS")
THREADS_VARIABLE = "NCCL_NTHREADS"
# Up to bytes per second: so many channels. NCCL makes two for one network device, and a channel is a block of threads on the GPU that moves
# up to 5 GB/s to or from host memory, and takes the GPU's time from a training (benchmarks/net_1xh200_202611).
CHANNELS = ((6.25e9, 0), (12.5e9, 4), (25e9, 8))
MOST_CHANNELS, CHANNELS_UNKNOWN = 16, 8
# A block of 512 threads, NCCL's own choice beyond 12 GB/s, leaves no room for another on its multiprocessor.
# Eight of 256 carry 2 to 10 % less.
NARROW_FROM, NARROW_THREADS = 8, 256
BY_NAME = {row.name: row for row in NETWORKS}


def channels(rate: float | None) -> int:
    """How many channels NCCL shall make at least for busbw's network at `rate` bytes per second, None where nobody knows that.

    0: as many as it makes by itself.
    """
    if rate is None:
        return CHANNELS_UNKNOWN
    return next((count for most, count in CHANNELS if rate <= most), MOST_CHANNELS)


def chosen(environ: Mapping[str, str]) -> bool:
    """Whether somebody has chosen channels."""
    return any(environ.get(name) for name in CHANNEL_VARIABLES)


def blocks(count: int, narrow: bool) -> dict[str, str]:
    """The variables by which NCCL makes `count` channels at least, none for 0; they must be the same on all ranks.

    `narrow` lets their blocks have fewer threads: where no two GPUs share a host, whose NVLink would need them all, and nobody has chosen.
    """
    if not count:
        return {}
    threads = {THREADS_VARIABLE: str(NARROW_THREADS)} if narrow and count >= NARROW_FROM else {}
    return {CHANNEL_VARIABLES[0]: str(count), **threads}
