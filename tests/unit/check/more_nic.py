"""Variants of the layer NIC: which port is named, and at which limit."""

from cases_nic import BOND, NET, PORT, bonded, counter, efa, erdma, infiniband, statistic
from changes_nic import (
    CARD,
    LOGGED,
    RDMA,
    RDMA_5,
    card,
    combine,
    container,
    down,
    of_infiniband,
    of_ports,
    of_two_ports,
    off_bus,
    on_all,
    ordered,
    rates,
    sensor,
    two_ports,
    unlayered,
    unlinked,
    unrooted,
    unset_rails,
    virtual,
    without_cards,
    without_types,
)
from healthy import healthy
from healthy_gpu import logged
from healthy_pcie import DEVICES, port_bdf

MORE_NIC = {
    "nic-missing": {
        "a card of the log is there": logged(
            LOGGED.format(class_="000").replace("0000:20:00.0", port_bdf(3))
        ),
        "an Ethernet card is gone": logged(LOGGED.format(class_="000")),
        "an Ethernet card is gone from a virtual machine": combine(
            virtual, logged(LOGGED.format(class_="000"))
        ),
        "an InfiniBand card is gone from a virtual machine": combine(
            virtual, logged(LOGGED.format(class_="700"))
        ),
        "a gap": off_bus,
        "a gap in a virtual machine": combine(virtual, off_bus),
        "no card, but NVSwitches": without_cards(healthy(ports=0)),
        "no card in a container": container(healthy(ports=0)),
        "no card, no NVSwitch": without_cards(
            healthy(gpus=0, ports=0)
            .drop(f"{DEVICES}/0000:05:00.0")
            .drop(f"{DEVICES}/0000:06:00.0")
            .drop(f"{DEVICES}/0000:07:00.0")
            .drop(f"{DEVICES}/0000:08:00.0")
        ),
        "another name": lambda tree: tree.link(
            "/sys/class/infiniband/storage0/device", "../../../0000:31:00.0"
        ),
        "the log without its start": lambda tree: (
            tree.update("kmsg", lines=[], begins_s=99.0),
            tree.link("/sys/class/infiniband/storage0/device", "../../../0000:31:00.0"),
        ),
    },
    "nic-present": {
        "no RDMA device": lambda tree: tree.drop(RDMA),
        "no answer": lambda tree: tree.data(f"{CARD}/config", b"\xff" * 64),
        "another port of the card without a bond": lambda tree: (
            tree.files(CARD.replace(".0", ".1"), vendor="0x15b3", **{"class": "0x020000"}),
            tree.link(f"{CARD.replace('.0', '.1')}/driver", "../drivers/mlx5_core"),
        ),
        "a card of Alibaba": card("0x1ded", "0x107f"),
        "another card of Alibaba": card("0x1ded", "0x1"),
        "an EFA": card("0x1d0f", "0xefa2"),
        "an ENA": card("0x1d0f", "0xec20"),
    },
    "nic-state": {
        "one for guests": lambda tree: tree.link(f"{RDMA_5}/device/physfn", "../0000:c4:00.1"),
        "no port": lambda tree: tree.drop(f"{RDMA}/ports").file(f"{RDMA}/fw_ver", "28.41.1000"),
        "an error": lambda tree: tree.error(f"{PORT}/state", "input/output error"),
        "not allowed": lambda tree: tree.error(f"{PORT}/state", "permission denied"),
        "empty": lambda tree: tree.file(f"{PORT}/state", ""),
        "a link without a configuration": lambda tree: tree.file(f"{PORT}/state", "2: INIT"),
        "it never had a link": down(3),
        "one other port is up": down(*range(7)),
        "two other ports are up": down(*range(6)),
        "no port is up": down(*range(8)),
    },
    "nic-link-layer": {
        "mixed": of_two_ports(
            lambda tree: tree.file("/sys/class/infiniband/mlx5_1/ports/1/link_layer", "InfiniBand")
        ),
        "one port": healthy(ports=1),
        "a card of another model": lambda tree: tree.file(f"{RDMA}/board_id", "MT_1"),
        "one of eight": lambda tree: tree.file(f"{PORT}/link_layer", "InfiniBand"),
        "of InfiniBand": of_infiniband(lambda tree: tree.file(f"{PORT}/link_layer", "Ethernet")),
        "a layer that is not known": unlayered,
        "no model": lambda tree: tree.drop(f"{RDMA}/board_id").drop(f"{RDMA}/hca_type"),
    },
    "nic-firmware": {
        "one port": healthy(ports=1),
        "two ports": healthy(ports=2),
        "not readable": lambda tree: tree.drop(f"{RDMA}/fw_ver"),
        "no model": lambda tree: tree.drop(f"{RDMA}/board_id").drop(f"{RDMA}/hca_type"),
        "another one of another model": lambda tree: tree.files(
            RDMA, fw_ver="16.35.1012", board_id="MT_1"
        ),
    },
    "nic-rate": {
        "the slowest first": rates("200 Gb/sec (2X NDR)", "100 Gb/sec (4X EDR)"),
        "half the lanes of all": rates(*["200 Gb/sec (2X NDR)"] * 8),
        "half the lanes of one": of_two_ports(rates("200 Gb/sec (2X NDR)", "")),
        "half the lanes of both": of_two_ports(rates(*["200 Gb/sec (2X NDR)"] * 2)),
        "not readable": lambda tree: tree.drop(f"{PORT}/rate"),
        "no rate": lambda tree: tree.file(f"{PORT}/rate", "fast"),
        "a single port": of_two_ports(combine(rates("200 Gb/sec (2X NDR)"), down(1))),
    },
    "nic-netdev": {
        "no address": lambda tree: tree.update("addresses", eth3=""),
        "link-local": lambda tree: tree.update("addresses", eth3="169.254.1.1/16"),
        "another namespace": lambda tree: tree.call("addresses", '{"lo": "127.0.0.1/8"}'),
        "addresses are not known": lambda tree: tree.failing("addresses", "not supported"),
        "no interface": (
            lambda tree: tree.drop(f"{PORT}/gid_attrs/ndevs").drop(f"{RDMA}/device/net")
        ),
        "eRDMA without an address": erdma().call("addresses", '{"eth0": ""}'),
        "eRDMA": erdma(),
        "down": lambda tree: tree.file(f"{NET}/operstate", "down"),
    },
    "nic-mtu": {
        "4200": lambda tree: tree.file(f"{NET}/mtu", "4200"),
        "4199": lambda tree: tree.file(f"{NET}/mtu", "4199"),
        "not readable": lambda tree: tree.drop(f"{NET}/mtu"),
        "empty": lambda tree: tree.file(f"{NET}/mtu", ""),
    },
    "nic-mtu-equal": {
        "not readable": lambda tree: tree.drop(f"{NET}/mtu"),
        "two values": (
            lambda tree: tree.file(f"{NET}/mtu", "4200").file("/sys/class/net/eth5/mtu", "4500")
        ),
    },
    "nic-gid": {
        "no type": without_types,
        "no type in a container": combine(container, without_types),
        "no GID": lambda tree: tree.drop(f"{PORT}/gids"),
        "types of RoCE v1 alone": lambda tree: [
            tree.file(f"{PORT}/gid_attrs/types/{index}", "IB/RoCE v1") for index in range(4)
        ],
        "one type alone": lambda tree: [
            tree.file(f"{PORT}/gid_attrs/types/0", "IB/RoCE v1"),
            *(tree.drop(f"{PORT}/gid_attrs/types/{index}") for index in (1, 2, 3)),
        ],
        "from the second on": lambda tree: (
            tree.drop(f"{PORT}/gids/0"),
            [tree.file(f"{PORT}/gid_attrs/types/{index}", "IB/RoCE v1") for index in range(1, 4)],
        ),
        "link-local alone": lambda tree: tree.drop(f"{PORT}/gids/2").drop(f"{PORT}/gids/3"),
    },
    "nic-bond": {
        "the first is slower": bonded(ordered((200000, 400000))),
        "the second is slower": bonded(ordered((400000, 200000))),
        "as another user": bonded(unrooted(BOND)),
        "as another user, with two aggregators": bonded(
            unrooted(BOND)[::-1].replace("1 :DI", "2 :DI", 1)[::-1]
        ),
        "none is up": bonded(unlinked(BOND)),
        "none is up, as another user": bonded(unlinked(unrooted(BOND))),
        "no slave": bonded(BOND.partition("\nSlave")[0]),
    },
    "nic-multirail": {
        "two rails in one network": lambda tree: tree.update(
            "addresses", eth3="10.0.0.9/16", eth0="10.0.0.1/16"
        ),
        "no setting": unset_rails,
        "one setting": lambda tree: (
            unset_rails(tree),
            tree.files("/proc/sys/net/ipv4/conf/all", arp_ignore="1"),
        ),
        "right for all": lambda tree: (
            unset_rails(tree),
            tree.files("/proc/sys/net/ipv4/conf/all", arp_ignore="1"),
            [
                tree.files(f"/proc/sys/net/ipv4/conf/{name}", arp_ignore="0")
                for name in ("eth0", "eth3")
            ],
        ),
    },
    "nic-flap": {
        "the most first": combine(
            counter("link_downed", 9, "counters"),
            lambda tree: tree.file(f"{RDMA_5}/ports/1/counters/link_downed", "12"),
        ),
        "two ports": of_two_ports(on_all("link_downed", 6, "counters", 2)),
        "three ports": healthy(ports=3),
        "at its maximum": counter("link_downed", 255, "counters"),
        "at its maximum on InfiniBand": of_infiniband(counter("link_downed", 255, "counters")),
        "more in a minute": (
            counter("link_downed", 9, "counters"),
            counter("link_downed", 10, "counters"),
        ),
        "not counted before": (
            lambda tree: (
                tree.drop(f"{PORT}/counters/link_downed").drop(f"{NET}/carrier_down_count"),
                tree.call("ethtool -S eth3", "{}"),
            ),
            counter("link_downed", 9, "counters"),
        ),
    },
    "nic-symbol-errors": {
        "exactly so many": counter("symbol_error", 120, "counters"),
        "one more": counter("symbol_error", 121, "counters"),
        "the same in three counters, and another": combine(
            counter("symbol_error", 610, "counters"),
            counter("port_rcv_errors", 5, "counters"),
            lambda tree: tree.update(
                "ethtool -S eth3", rx_symbol_err_phy=600, rx_pcs_symbol_err_phy=500
            ),
        ),
        "at its maximum": counter("symbol_error", 65535, "counters"),
        "at its maximum on InfiniBand": of_infiniband(counter("symbol_error", 65535, "counters")),
        "at its maximum in a minute": (
            counter("symbol_error", 65535, "counters"),
            counter("symbol_error", 65535, "counters"),
        ),
        "more in a minute": (
            counter("symbol_error", 200, "counters"),
            counter("symbol_error", 400, "counters"),
        ),
        "no buffer left": counter("excessive_buffer_overrun_errors", 200, "counters"),
        "no buffer left in a minute": (
            counter("excessive_buffer_overrun_errors", 200, "counters"),
            counter("excessive_buffer_overrun_errors", 400, "counters"),
        ),
        "both": combine(
            counter("excessive_buffer_overrun_errors", 200, "counters"),
            counter("symbol_error", 200, "counters"),
        ),
        "recovered too often to count": counter("link_error_recovery", 255, "counters"),
        "the most first": combine(
            counter("symbol_error", 200, "counters"),
            lambda tree: tree.file(f"{RDMA_5}/ports/1/counters/symbol_error", "300"),
        ),
    },
    "nic-ber": {
        "few bits": statistic(rx_bits_phy=10**10, rx_corrected_bits_phy=1),
        "too few bits": statistic(rx_bits_phy=10**10 - 1, rx_corrected_bits_phy=1),
        "no bits": lambda tree: tree.call("ethtool -S eth3", '{"rx_corrected_bits_phy": 5}'),
        "exactly the limit": statistic(rx_bits_phy=10**17, rx_corrected_bits_phy=10**10),
        "more than the limit": statistic(rx_bits_phy=10**17, rx_corrected_bits_phy=10**10 + 1),
        "the worst first": combine(
            statistic(rx_corrected_bits_phy=2 * 10**10),
            lambda tree: tree.update("ethtool -S eth5", rx_corrected_bits_phy=3 * 10**10),
        ),
        "few bits in a minute": (
            statistic(),
            statistic(rx_bits_phy=10**17 + 10**9, rx_corrected_bits_phy=10**8 + 10**9),
        ),
    },
    "nic-discards": {
        "not counted": lambda tree: (
            tree.drop(f"{PORT}/counters"),
            tree.call("ethtool -S eth3", '{"rx_packets_phy": 5}'),
        ),
        "the most first": combine(
            statistic(rx_discards_phy=10**6, rx_oversize_pkts_phy=10),
            lambda tree: tree.update("ethtool -S eth5", rx_discards_phy=10**6),
        ),
        "at its maximum": counter("port_xmit_discards", 65535, "counters"),
        "on InfiniBand": of_infiniband(
            counter("port_xmit_discards", 60000, "counters"),
            lambda tree: tree.call("ethtool -S ib3", "{}"),
        ),
    },
    "nic-module": {
        "at its maximum": sensor(temp2_input="75000", temp2_max="75000", temp2_crit="80000"),
        "below it": sensor(temp2_input="74999", temp2_max="75000", temp2_crit="80000"),
        "no maximum": sensor(temp2_input="95000"),
        "a maximum of 0": sensor(temp2_input="95000", temp2_max="0", temp2_crit="0"),
        "cold": sensor(temp2_input="-5000", temp2_max="75000"),
        "no number": sensor(temp2_input="hot", temp2_max="75000"),
        "events": statistic(module_bad_shorted=2),
    },
    "nic-pci-stalls": {
        "the most first": combine(
            statistic(
                outbound_pci_stalled_wr=40,
                outbound_pci_stalled_wr_events=70,
                outbound_pci_buffer_overflow=9,
            ),
            lambda tree: tree.update(
                "ethtool -S eth5", outbound_pci_stalled_wr=40, outbound_pci_stalled_wr_events=70
            ),
        ),
        "not counted": lambda tree: tree.call(
            "ethtool -S eth3", '{"outbound_pci_stalled_wr_events": 5}'
        ),
        "a tenth of the time": (statistic(), statistic(outbound_pci_stalled_wr_events=6)),
        "once in a minute": (statistic(), statistic(outbound_pci_stalled_wr_events=1)),
    },
    "nic-retransmissions": {
        "the most first": two_ports("packet_seq_err", 10**6, 2 * 10**6),
        "given up": two_ports("req_transport_retries_exceeded", 20, 30),
        "given up on all": combine(
            on_all("req_transport_retries_exceeded", 5),
            counter("req_transport_retries_exceeded", 15),
        ),
        "given up on all, one less": combine(
            on_all("req_transport_retries_exceeded", 5),
            counter("req_transport_retries_exceeded", 14),
        ),
        "given up on both of two": of_two_ports(
            on_all("req_transport_retries_exceeded", 10, ports=2)
        ),
        "given up on three": of_ports(3, on_all("req_transport_retries_exceeded", 10, ports=3)),
        "not counted": lambda tree: tree.drop(f"{PORT}/hw_counters"),
        "packets are not counted": lambda tree: tree.drop(f"{PORT}/counters"),
        "some, and packets are not counted": combine(
            counter("packet_seq_err", 5), lambda tree: tree.drop(f"{PORT}/counters")
        ),
    },
    "nic-efa": {
        "no counter": lambda tree: tree.drop("/sys/class/infiniband/rdmap0/ports/1/hw_counters"),
        "no packet, and no answer": lambda tree: tree.files(
            "/sys/class/infiniband/rdmap0/ports/1/hw_counters",
            unresponsive_remote_events="3",
            rx_pkts="0",
        ),
        "no answer of a few": lambda tree: tree.file(
            "/sys/class/infiniband/rdmap0/ports/1/hw_counters/unresponsive_remote_events", "3"
        ),
        "no GPU": efa().drop(f"{DEVICES}/0000:1b:00.0"),
        "a network card beside the GPU": (
            efa().files(f"{DEVICES}/0000:20:00.0", vendor="0x1d0f", **{"class": "0x020000"})
        ),
        "no plugin": lambda tree: tree.drop("/opt/amazon"),
    },
    "nic-physical-state": {
        "polling": lambda tree: tree.file(f"{PORT}/phys_state", "2: Polling"),
        "polling without an interface": lambda tree: (
            tree.file(f"{PORT}/phys_state", "2: Polling")
            .drop(f"{PORT}/gid_attrs/ndevs")
            .drop(f"{RDMA}/device/net")
        ),
        "polling on InfiniBand": of_infiniband(
            lambda tree: tree.file(f"{PORT}/phys_state", "2: Polling")
        ),
        "switched off": (
            lambda tree: tree.file(f"{PORT}/phys_state", "3: Disabled").file(
                f"{NET}/flags", "0x1002"
            )
        ),
    },
    "nic-pkey": {
        "two partitions": (
            infiniband("pkeys/0", "0x8001")[0]
            .file(f"{PORT}/pkeys/0", "0x8001")
            .file(f"{PORT}/pkeys/1", "0xffff")
        )
    },
}
