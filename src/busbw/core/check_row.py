"""What a check is: the texts of its page."""

from enum import Enum

import msgspec


class Layer(Enum):
    """The part of a machine that a check belongs to."""

    GPU = "GPU"
    NVLINK = "NVLink"
    PCIE = "PCIe"
    NIC = "NIC"
    ROCE = "RoCE"
    KERNEL = "kernel"
    LIMITS = "limits"
    CPU = "CPU and memory"
    NCCL = "NCCL"
    LAUNCHER = "launcher"
    EXPECTED = "expected"  # by a file of what a node should have


class CheckRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a check is, for its page.

    `fix` is a command or change with the names of one machine in braces, like {netdev}. `stays`
    says whether the fix survives a reboot, and if not, what would make it stay.
    """

    id: str  # BW012; never reused
    name: str  # nic-mtu
    layer: Layer
    title: str  # what is looked at: "MTU of RoCE interfaces"
    right: str  # what passes
    why: str  # what goes wrong otherwise
    fix: str
    stays: str
    reads: tuple[str, ...]  # files, commands and library calls
    sources: tuple[str, ...] = ()  # documents that state the rule
