"""Changes of a machine that variants of the layer NIC make."""

from cases_nic import BOND, NET, PORT, counter
from healthy import healthy
from healthy_pcie import DEVICES, port_bdf
from tree import Change, Tree, combine

CARD = f"{DEVICES}/{port_bdf(3)}"


RDMA, RDMA_5 = "/sys/class/infiniband/mlx5_3", "/sys/class/infiniband/mlx5_5"


LOGGED = "pci 0000:20:00.0: [15b3:1021] type 00 class 0x020{class_} PCIe Endpoint"


def virtual(tree: Tree) -> Tree:
    return tree.files("/sys/class/dmi/id", sys_vendor="QEMU")


def container(tree: Tree) -> Tree:
    return tree.file("/.dockerenv", "")


def two_ports(name: str, first: int, second: int) -> Change:
    """A counter of the hardware of mlx5_3 and mlx5_5."""
    return combine(
        counter(name, first),
        lambda tree: tree.file(f"{RDMA_5}/ports/1/hw_counters/{name}", str(second)),
    )


def on_all(name: str, value: int, folder: str = "hw_counters", ports: int = 8) -> Change:
    """A counter of every port."""
    return lambda tree: [
        tree.file(f"/sys/class/infiniband/mlx5_{index}/ports/1/{folder}/{name}", str(value))
        for index in range(ports)
    ]


def of_ports(count: int, change: Change) -> Tree:
    """A server with fewer ports."""
    tree = healthy(ports=count)
    change(tree)
    return tree


def of_two_ports(change: Change) -> Tree:
    """A server with two ports."""
    return of_ports(2, change)


def off_bus(tree: Tree) -> None:
    """The kernel log has the start, and PCI no longer a card."""
    tree.drop(RDMA).drop(CARD)


def without_cards(tree: Tree) -> Tree:
    """Without network cards, and with an Intel card and a BlueField's memory on PCI."""
    tree.files(f"{DEVICES}/0000:31:00.0", vendor="0x8086", **{"class": "0x020000"})
    return tree.files(f"{DEVICES}/0000:32:00.0", vendor="0x15b3", **{"class": "0x058000"})


def card(vendor: str, device: str) -> Change:
    """One more network card."""
    return lambda tree: tree.files(
        f"{DEVICES}/0000:20:00.0", vendor=vendor, device=device, **{"class": "0x020000"}
    )


def unlayered(tree: Tree) -> None:
    """Most ports have another layer."""
    for index in range(5):
        tree.file(f"/sys/class/infiniband/mlx5_{index}/ports/1/link_layer", "Other")


def unset_rails(tree: Tree) -> None:
    """Two rails in one network, with settings that are no numbers."""
    tree.update("addresses", eth3="10.0.0.9/16", eth0="10.0.0.1/16")
    for name in ("all", "eth0", "eth3"):
        tree.files(
            f"/proc/sys/net/ipv4/conf/{name}", arp_ignore="x", arp_announce="2", rp_filter="2"
        )


def unlinked(text: str) -> str:
    """The bond without a link."""
    for name in ("eth0", "eth1"):
        text = text.replace(f"{name}\nMII Status: up", f"{name}\nMII Status: down")
    return text


def ordered(speeds: tuple[int, int]) -> str:
    """The bond with other speeds."""
    first, second = speeds
    text = BOND.replace(
        "eth0\nMII Status: up\nSpeed: 400000", f"eth0\nMII Status: up\nSpeed: {first}"
    )
    return text.replace(
        "eth1\nMII Status: up\nSpeed: 400000", f"eth1\nMII Status: up\nSpeed: {second}"
    )


def unrooted(text: str) -> str:
    """The bond as another user reads it: without the active aggregator."""
    start, _, after_header = text.partition("802.3ad info")
    return start + "\nSlave Interface" + after_header.partition("\nSlave Interface")[2]


def sensor(**values: str) -> Change:
    """A sensor of the module of eth3."""
    return lambda tree: tree.files(f"{NET}/device/hwmon/hwmon4", **values)


def rates(*texts: str) -> Change:
    """The rates of the first ports."""
    return lambda tree: [
        tree.file(f"/sys/class/infiniband/mlx5_{index}/ports/1/rate", text)
        for index, text in enumerate(texts)
    ]


def down(*indices: int) -> Change:
    """Ports that never had a link."""

    def change(tree: Tree) -> None:
        for index in indices:
            port = f"/sys/class/infiniband/mlx5_{index}/ports/1"
            tree.file(f"{port}/state", "1: DOWN").file(f"{port}/counters/link_downed", "0")

    return change


def without_types(tree: Tree) -> None:
    tree.drop(f"{PORT}/gid_attrs/types")


def of_infiniband(*changes: Change) -> Tree:
    """The InfiniBand server."""
    tree = healthy(layer="InfiniBand")
    combine(*changes)(tree)
    return tree
