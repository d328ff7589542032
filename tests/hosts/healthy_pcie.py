"""PCI devices of the healthy server: a switch for each GPU and its port."""

from tree import Tree

BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")


def gpu_bdf(index: int) -> str:
    """PCI address of a GPU."""
    return f"0000:{BUSES[index % 8]}:00.0"


def port_bdf(index: int) -> str:
    """PCI address of a network port; the ninth is the second port of the first card."""
    return f"0000:{BUSES[index % 8]}:01.{index // 8}"


def add(tree: Tree, gpus: int, ports: int) -> None:
    """To the tree."""
    for index in range(gpus):
        tree.files(f"/sys/bus/pci/devices/{gpu_bdf(index)}", vendor="0x10de", **{"class": "0x030200"}, numa_node=str(index // 4))
    for index in range(ports):
        tree.files(f"/sys/bus/pci/devices/{port_bdf(index)}", vendor="0x15b3", **{"class": "0x020000"}, numa_node=str(index % 8 // 4))
