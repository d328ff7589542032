"""The networks of --net, and the number of channels for busbw's own network.

The number is decided here, because NCCL reads it from the environment before it loads the plugin.
The plugin itself decides which interfaces it uses and how fast they are (host/net_plugin.py asks
it), and how many of the channels a small collective uses.
"""

from collections.abc import Mapping
from dataclasses import dataclass

LIBRARY_VARIABLE = "NCCL_NET_PLUGIN"
# If one of these is set, the user has chosen channels.
CHANNEL_VARIABLES = ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS")
THREADS_VARIABLE = "NCCL_NTHREADS"
# Rates in bytes per second, and the number of channels up to each. NCCL makes two for one network
# device. A channel is a block of GPU threads that moves up to 5 GB/s to or from host memory, and
# that a training cannot use meanwhile (benchmarks/net_1xh200_202611).
CHANNELS = ((6.25e9, 0), (12.5e9, 4), (25e9, 8))
MAX_CHANNELS, CHANNELS_UNKNOWN = 16, 8
# A block of 512 threads, NCCL's choice above 12 GB/s, leaves no room for another block on its
# multiprocessor. Eight blocks of 256 threads are 2 to 10 % slower.
NARROW_FROM, NARROW_THREADS = 8, 256


@dataclass(frozen=True, slots=True)
class NcclNetwork:
    """One network.

    `nccl` is its name in NCCL_NET and in NCCL's log. `variables` select it; a `plugin` also needs
    the path of its library.
    """

    name: str
    nccl: str
    meaning: str
    variables: dict[str, str]
    plugin: bool = False


# NCCL_NET selects the network, and NCCL fails if it cannot use it. The other variables override
# settings of the environment that would prevent it: disabled IB, or an image's own libnccl-net.so,
# whose tuner NCCL would use even without its network.
NETWORKS: tuple[NcclNetwork, ...] = (
    # Without the count, NCCL 2.28 and 2.29 forget the plugin when the last communicator is
    # destroyed, and the next one does not use it.
    NcclNetwork(
        "busbw",
        "busbw",
        "busbw's plugin: many TCP streams (package busbw-native)",
        {"NCCL_NET": "busbw", "NCCL_NET_PLUGIN_REF_COUNT": "1"},
        plugin=True,
    ),
    NcclNetwork(
        "socket",
        "Socket",
        "NCCL's own TCP sockets",
        {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1", LIBRARY_VARIABLE: "none"},
    ),
    NcclNetwork(
        "ib",
        "IB",
        "NCCL's own InfiniBand and RoCE",
        {"NCCL_NET": "IB", "NCCL_IB_DISABLE": "0", LIBRARY_VARIABLE: "none"},
    ),
)
BY_NAME = {row.name: row for row in NETWORKS}


def channels(rate: float | None) -> int:
    """The fewest channels for busbw's network at a rate in bytes/s; 0: left to NCCL."""
    if rate is None:
        return CHANNELS_UNKNOWN
    for largest_rate, count in CHANNELS:
        if rate <= largest_rate:
            return count
    return MAX_CHANNELS


def is_network_chosen(environ: Mapping[str, str]) -> bool:
    """Whether the user has chosen channels."""
    return any(environ.get(name) for name in CHANNEL_VARIABLES)


def blocks(count: int, narrow: bool) -> dict[str, str]:
    """The variables for at least `count` channels, none for 0. All ranks must have the same.

    `narrow` allows blocks with fewer threads. It is for hosts with one GPU, because NVLink needs
    all threads, and only if the user has not chosen.
    """
    if not count:
        return {}
    variables = {CHANNEL_VARIABLES[0]: str(count)}
    if narrow and count >= NARROW_FROM:
        variables[THREADS_VARIABLE] = str(NARROW_THREADS)
    return variables
