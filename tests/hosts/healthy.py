"""A healthy server: 8 H100, and a RoCE or InfiniBand port of 400 Gbit/s beside each."""

from functools import cache

import healthy_gpu
import healthy_nccl
import healthy_nic
import healthy_os
import healthy_pcie
from tree import Tree


def healthy(*, gpus: int = 8, ports: int = 8, layer: str = "Ethernet") -> Tree:
    """The server with so many GPUs and ports; all checks pass on it, or do not apply."""
    return _made(gpus, ports, layer).copy()


@cache
def _made(gpus: int, ports: int, layer: str) -> Tree:
    tree = Tree()
    healthy_os.add(tree)
    healthy_pcie.add(tree, gpus, ports)
    healthy_gpu.add(tree, gpus)
    healthy_nic.add(tree, ports, layer)
    healthy_nccl.add(tree)
    tree.paths = dict(sorted(tree.paths.items()))  # which a source would take longer to sort
    return tree
