"""A host of a rack whose GPUs are all in one NVLink domain."""

from healthy import healthy
from healthy_gpu import all_changed
from tree import Tree

IMEX = """Connectivity Table Legend:
I - Invalid - Node wasn't reachable, no connection status available
C - Connected - Ready for operation

5/12/2025 06:08:10.580
Nodes:
Node #0   - 10.0.0.1        - READY                - Version: 570.172
Node #1   - 10.0.0.2        - READY                - Version: 570.172

 Nodes From\\To  0   1
       0        C   C
       1        C   C

Domain State: UP"""


def rack() -> Tree:
    """The host; its domain has one other."""
    tree = healthy(gpus=4)
    all_changed(
        name="NVIDIA GB200",
        fabric={"state": 3, "status": 0, "cluster": "6f0c" * 8, "clique": 32766},
    )(tree)
    return tree.call("imex", IMEX).file("/dev/nvidia-caps-imex-channels/channel0", "")
