"""The table of networks that NCCL can be told to use: the word for --net, NCCL's own name, and the variables that choose it."""

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
    Network("ib", "IB", "NCCL's own InfiniBand and RoCE", {"NCCL_NET": "IB", "NCCL_IB_DISABLE": "0"}),
)  # fmt: skip
BY_NAME = {row.name: row for row in NETWORKS}
