"""Network ports of the healthy server: ConnectX-7, a port beside each GPU, and one for management."""

from healthy_pcie import port_bdf
from tree import Tree


def add(tree: Tree, ports: int, layer: str) -> None:
    """To the tree."""
    for index in range(ports):
        netdev, device = f"{'eth' if layer == 'Ethernet' else 'ib'}{index}", f"mlx5_{index}"
        base, port, bdf = f"/sys/class/infiniband/{device}", f"/sys/class/infiniband/{device}/ports/1", port_bdf(index)
        tree.files(port, link_layer=layer, state="4: ACTIVE", phys_state="5: LinkUp", rate="400 Gb/sec (4X NDR)")
        tree.file(f"{port}/gid_attrs/ndevs/0", netdev).file(f"{port}/gid_attrs/types/3", "RoCE v2")
        tree.link(f"{base}/device", f"../../../{bdf}").file(f"{base}/device/numa_node", str(index % 8 // 4))
        tree.listing(f"{base}/device/net", netdev)
        net = f"/sys/class/net/{netdev}"
        tree.files(net, speed="400000", operstate="up", mtu="9000" if layer == "Ethernet" else "4092", dev_port="0")
        tree.link(f"{net}/device", f"../../../{bdf}").file(f"{net}/device/numa_node", str(index % 8 // 4))
        tree.listing(f"{net}/device/infiniband", device)
    tree.files("/sys/class/net/eno1", speed="25000", operstate="up", mtu="1500", dev_port="0")
    tree.link("/sys/class/net/eno1/device", "../../../0000:31:00.0")
