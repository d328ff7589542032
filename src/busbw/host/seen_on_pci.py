"""NVIDIA's GPUs and network cards that the kernel found on PCI since it started, by its log.

A card that falls off the bus and is removed leaves no trace in sysfs, but these lines.
"""

import re

from busbw.host.dmesg import Line, PastLog

_BDF = r"([0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
# "pci 0000:1b:00.0: [10de:2330] type 00 class 0x030200 PCIe Endpoint" (Linux drivers/pci/probe.c)
_GPU = re.compile(rf"\bpci {_BDF}: \[10de:[0-9a-f]{{4}}\] type 00 class 0x03|\bnvidia {_BDF}: ")
_CARD = re.compile(rf"\bpci {_BDF}: \[15b3:([0-9a-f]{{4}})\] type 00 class 0x02")
# "mlx5_core 0000:1c:00.0: 252.048 Gb/s available PCIe bandwidth (...)": mlx5 prints it for physical
# functions only.
_PHYSICAL = re.compile(rf"\bmlx5_core {_BDF}: .*available PCIe bandwidth")
# Virtual functions are removed on purpose. Linux drivers/net/ethernet/mellanox/mlx5/core/main.c
# marks these as such.
_VIRTUAL_CARDS = frozenset({"1012", "1014", "1016", "1018", "101a", "101c", "101e", "a2d3"})


def gpus_seen(log: PastLog) -> dict[str, Line]:
    """The first line on each GPU, by address.

    Virtual functions of a GPU have another device or function number than 0.
    """
    found: dict[str, Line] = {}
    for line in log.lines:
        if match := _GPU.search(line.text):
            bdf = match[1] or match[2]
            if _whole(bdf):
                found.setdefault(bdf, line)
    return found


def _whole(bdf: str) -> bool:
    """Whether it may be a GPU itself: function 0 of device 0, or any device of bus 0, where
    virtual machines have theirs.
    """
    _, bus, rest = bdf.split(":")
    return rest == "00.0" or (bus == "00" and rest.endswith(".0"))


def cards_seen(log: PastLog) -> dict[str, Line]:
    """The first line on each physical function of a network card of NVIDIA, by address."""
    found: dict[str, Line] = {}
    for line in log.lines:
        if ((match := _CARD.search(line.text)) and match[2] not in _VIRTUAL_CARDS) or (
            match := _PHYSICAL.search(line.text)
        ):
            found.setdefault(match[1], line)
    return found
