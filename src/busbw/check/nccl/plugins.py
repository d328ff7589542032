"""Network plugins of clouds, and the variables that they need, which elsewhere are left over from
experiments.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_CHUNKS = ("NCCL_P2P_NET_CHUNKSIZE", "NCCL_P2P_PCI_CHUNKSIZE", "NCCL_P2P_NVL_CHUNKSIZE")
_TCPX = """
NCCL_ALGO NCCL_PROTO NCCL_NVLS_ENABLE NCCL_MIN_NCHANNELS NCCL_MAX_NCHANNELS NCCL_BUFFSIZE
NCCL_P2P_PXN_LEVEL NCCL_DYNAMIC_CHUNK_SIZE NCCL_USE_SNAP NCCL_IB_DISABLE
"""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin, and the variables that its maker's scripts set.

    It is there if a variable begins with one of `prefixes`, or has one of `values` in it.
    """

    name: str
    prefixes: tuple[str, ...]
    values: tuple[str, ...]
    variables: frozenset[str]

    def is_of(self, environment: Mapping[str, str]) -> bool:
        """Whether these variables are of a job with the plugin."""
        texts = [environment.get(name, "") for name in _WHERE_PLUGINS_ARE]
        named = any(value in text for text in texts for value in self.values)
        return named or any(name.startswith(self.prefixes) for name in environment)


# Variables that name a plugin, or the folder that it is in.
_WHERE_PLUGINS_ARE = (
    "LD_LIBRARY_PATH",
    "NCCL_NET",
    "NCCL_NET_PLUGIN",
    "NCCL_LIB_DIR",
    "NCCL_TUNER_CONFIG_PATH",
)
# Sources: GoogleCloudPlatform/container-engine-accelerators, gpudirect-tcpx and gpudirect-tcpxo,
# with nccl-env-profile.sh and the profiles of its guest config checker, which refuses other values;
# PerfKitBenchmarker, nvidia_hpl/a4.dockerfile for gIB; aws-samples, NCCL tests over EFA.
PLUGINS = (
    Plugin(
        "Google's GPUDirect-TCPX",
        ("NCCL_GPUDIRECTTCPX_", "NCCL_FASTRAK_"),
        ("/tcpx/", "GPUDirectTCPX", "/tcpxo/", "/fastrak/", "FasTrak"),
        frozenset((*_CHUNKS, *_TCPX.split())),
    ),
    Plugin("Google's gIB", (), ("/gib/", "gIB"), frozenset(_CHUNKS)),
    Plugin(
        "AWS's EFA",
        ("FI_EFA_", "OFI_NCCL_"),
        ("/aws-ofi-nccl", "/amazon/efa", "/amazon/ofi-nccl"),
        frozenset(("NCCL_BUFFSIZE", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_IB_DISABLE")),
    ),
)


def plugin_with(name: str, environment: Mapping[str, str]) -> str:
    """The plugin of these variables whose settings have a variable; '' if none is."""
    having = (plugin for plugin in PLUGINS if name in plugin.variables)
    return next((plugin.name for plugin in having if plugin.is_of(environment)), "")
