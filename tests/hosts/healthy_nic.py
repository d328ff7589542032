"""Network ports of the healthy server: ConnectX-7, a port beside each GPU, and one for
management.
"""

import json

from healthy_pcie import port_bdf
from tree import Tree

DCB = {
    "pfc": [3],
    "pfc_most": 8,
    "classes": [1, 0, 2, 3, 4, 5, 6, 7],
    "shares": [12, 13, 12, 13, 12, 13, 12, 13],
    "dscp": {str(dscp): dscp // 8 for dscp in range(64)},
    "trust": [],
    "host": True,
}
PACKETS = 10**10
STATISTICS = {
    "link_down_events_phy": 1,
    "rx_symbol_err_phy": 0,
    "rx_pcs_symbol_err_phy": 0,
    "rx_crc_errors_phy": 0,
    "rx_bits_phy": 10**17,
    "rx_corrected_bits_phy": 10**8,
    "rx_discards_phy": 0,
    "tx_discards_phy": 0,
    "rx_packets_phy": PACKETS,
    "tx_packets_phy": PACKETS,
    "rx_oversize_pkts_phy": 0,
    "module_high_temp": 0,
    "module_bus_stuck": 0,
    "module_bad_shorted": 0,
    "outbound_pci_stalled_rd": 0,
    "outbound_pci_stalled_wr": 0,
    "outbound_pci_stalled_rd_events": 0,
    "outbound_pci_stalled_wr_events": 0,
    "outbound_pci_buffer_overflow": 0,
    "tx_vport_rdma_unicast_bytes": 4 * 10**13,
    "vport_loopback_bytes": 0,
    "tx_prio0_bytes": 10**9,
    "tx_prio3_bytes": 41 * 10**12,
    "tx_pause_storm_warning_events": 0,
    "tx_pause_storm_error_events": 0,
}
HW = (
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "roce_adp_retrans",
    "rx_icrc_encapsulated",
    "out_of_sequence",
    "out_of_buffer",
    "rnr_nak_retry_err",
    "req_transport_retries_exceeded",
    "req_rnr_retries_exceeded",
    "rp_cnp_ignored",
)
PORT = (
    "symbol_error",
    "link_error_recovery",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "port_xmit_discards",
)


def add(tree: Tree, ports: int, layer: str) -> None:
    """To the tree."""
    addresses = {"lo": "127.0.0.1/8", "eno1": "192.168.1.10/24"}
    for index in range(ports):
        netdev, device = f"{'eth' if layer == 'Ethernet' else 'ib'}{index}", f"mlx5_{index}"
        _device(tree, device, port_bdf(index), index % 8 // 4)
        _port(tree, f"/sys/class/infiniband/{device}/ports/1", netdev, layer)
        _interface(
            tree,
            netdev,
            device,
            port_bdf(index),
            index % 8 // 4,
            "9000" if layer == "Ethernet" else "4092",
        )
        if layer == "Ethernet":
            addresses[netdev] = f"10.{index}.0.1/24"
            _roce(tree, device, netdev, index)
        else:
            tree.file(f"/sys/class/infiniband/{device}/ports/1/pkeys/0", "0xffff")
            tree.file(f"/sys/class/infiniband/{device}/ports/1/pkeys/1", "0x0000")
    tree.files("/sys/class/net/eno1", speed="25000", operstate="up", mtu="1500", dev_port="0")
    tree.link("/sys/class/net/eno1/device", "../../../0000:31:00.0")
    setter = {
        "path": "/etc/systemd/system/rdma-qos.service",
        "words": ["mlnx_qos"],
        "enabled": True,
    }
    tree.call("files that set RoCE at the start", json.dumps([setter]))
    tree.call("addresses", json.dumps(addresses))


def _device(tree: Tree, device: str, bdf: str, numa: int) -> None:
    base = f"/sys/class/infiniband/{device}"
    tree.files(base, fw_ver="28.41.1000", board_id="MT_0000000838", hca_type="MT4129")
    tree.link(f"{base}/device", f"../../../{bdf}").file(f"{base}/device/numa_node", str(numa))
    tree.link(f"{base}/device/driver", "../../../../bus/pci/drivers/mlx5_core")
    tree.link(f"/sys/bus/pci/devices/{bdf}/driver", "../../../bus/pci/drivers/mlx5_core")
    tree.file(f"/sys/bus/pci/devices/{bdf}/device", "0x1021")


def _port(tree: Tree, port: str, netdev: str, layer: str) -> None:
    tree.listing(f"{port.removesuffix('/ports/1')}/device/net", netdev)
    tree.files(
        port,
        link_layer=layer,
        state="4: ACTIVE",
        phys_state="5: LinkUp",
        rate="400 Gb/sec (4X NDR)",
        sm_lid="0x1",
    )
    tree.file(f"{port}/gid_attrs/ndevs/0", netdev)
    tree.files(f"{port}/hw_counters", **dict.fromkeys(HW, "0"), rp_cnp_handled="4632")
    tree.files(f"{port}/counters", **dict.fromkeys(PORT, "0"), link_downed="1")
    tree.files(f"{port}/counters", port_xmit_packets=str(PACKETS), port_rcv_packets=str(PACKETS))


def _interface(tree: Tree, netdev: str, device: str, bdf: str, numa: int, mtu: str) -> None:
    net = f"/sys/class/net/{netdev}"
    tree.files(
        net,
        speed="400000",
        operstate="up",
        mtu=mtu,
        dev_port="0",
        flags="0x1003",
        carrier_down_count="1",
    )
    tree.link(f"{net}/device", f"../../../{bdf}").file(f"{net}/device/numa_node", str(numa))
    tree.listing(f"{net}/device/infiniband", device)
    tree.call(f"ethtool -S {netdev}", json.dumps(STATISTICS))
    driver = {
        "name": "mlx5_core",
        "version": "6.8.0-60-generic",
        "firmware": "28.41.1000 (MT_0000000838)",
        "bus": bdf,
    }
    tree.call(f"ethtool -i {netdev}", json.dumps(driver))


def _roce(tree: Tree, device: str, netdev: str, index: int) -> None:
    port, net = f"/sys/class/infiniband/{device}/ports/1", f"/sys/class/net/{netdev}"
    own = f"0000:0000:0000:0000:0000:ffff:0a{index:02x}:0001"
    for number, address in enumerate(("fe80:0000:0000:0000:0e42:a1ff:fe00:0001", own)):
        for type_index, kind in enumerate(("IB/RoCE v1", "RoCE v2")):
            tree.file(f"{port}/gids/{2 * number + type_index}", address)
            tree.file(f"{port}/gid_attrs/types/{2 * number + type_index}", kind)
            tree.file(f"{port}/gid_attrs/ndevs/{2 * number + type_index}", netdev)
    tree.file(f"{net}/qos/trust", "dscp").file(f"{net}/ecn/roce_np/cnp_dscp", "48")
    for priority in range(8):
        tree.file(f"{net}/ecn/roce_np/enable/{priority}", "1").file(
            f"{net}/ecn/roce_rp/enable/{priority}", "1"
        )
    tree.file(f"/sys/class/infiniband/{device}/tc/1/traffic_class", "Global tclass=106")
    configfs = f"/sys/kernel/config/rdma_cm/{device}/ports/1"
    tree.files(configfs, default_roce_mode="RoCE v2", default_roce_tos="106")
    tree.call(f"dcb {netdev}", json.dumps(DCB)).call(
        f"ethtool -a {netdev}", json.dumps({"rx": False, "tx": False})
    )
