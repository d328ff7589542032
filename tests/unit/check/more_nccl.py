"""Variants of the layer NCCL: values, versions and machines on which a variable is right or wrong."""

import json

from cases_nccl import bonded, with_variable
from changes_nccl import set_to
from healthy import healthy
from healthy_gpu import all_changed, changed, links
from healthy_nccl import HOME, library
from tree import Change, Tree, combine, environment

NO_PORT, INFINIBAND = healthy(ports=0), healthy(layer="InfiniBand")


def on(tree: Tree, change: Change) -> Tree:
    """Another server after a change."""
    tree = tree.copy()
    change(tree)
    return tree


def version(number: str) -> Change:
    """NCCL of one version."""
    return lambda tree: tree.call(
        "nccl-libraries", json.dumps([library("/opt/venv/lib/libnccl.so.2", number)])
    )


def blind(tree: Tree) -> Tree:
    """A machine of whose devices nothing is known."""
    for path in ("/sys/class/infiniband", "/sys/class/net"):
        tree.drop(path)
    return tree


def conf(text: str, *changes: Change) -> Change:
    """A file of NCCL."""
    return combine(lambda tree: tree.file("/etc/nccl.conf", text), *changes)


def two_layers(tree: Tree) -> None:
    tree.file("/sys/class/infiniband/mlx5_3/ports/1/link_layer", "InfiniBand")


def bridge(name: str, address: str) -> Change:
    """An interface of a bridge, and its address."""
    files = {"operstate": "up", "mtu": "1500"}
    return lambda tree: tree.files(f"/sys/class/net/{name}", **files).update(
        "addresses", **{name: address}
    )


def two_ports_of(device: str) -> Change:
    """A storage port that is slower."""
    return lambda tree: tree.file(
        f"/sys/class/infiniband/{device}/ports/1/rate", "100 Gb/sec (4X EDR)"
    )


GID = {"NCCL_IB_GID_INDEX": "3"}


MORE_NCCL = {
    "nccl-collnet": {
        **set_to("NCCL_COLLNET_ENABLE", "0"),
        "InfiniBand": on(INFINIBAND, environment(NCCL_COLLNET_ENABLE="1")),
        "one InfiniBand port": combine(environment(NCCL_COLLNET_ENABLE="1"), two_layers),
        "no port": on(NO_PORT, environment(NCCL_COLLNET_ENABLE="1")),
        "no plugin": environment(NCCL_COLLNET_ENABLE="1", NCCL_NET_PLUGIN="none"),
        "a plugin": environment(NCCL_COLLNET_ENABLE="1", NCCL_NET_PLUGIN="sharp"),
    },
    "nccl-conf-files": {
        "two lines": conf("NCCL_DEBUG=WARN\nNCCL_IB_TC=106"),
        "nothing but a comment": conf("# nothing"),
        "a line that the environment overrides": conf(
            "NCCL_DEBUG=WARN\nNCCL_IB_TC=106", environment(NCCL_IB_TC="41")
        ),
        "a line that an empty value overrides": conf("NCCL_IB_TC=106", environment(NCCL_IB_TC="")),
        "a line that the environment has too": conf(
            "NCCL_IB_TC=106", environment(NCCL_IB_TC="106")
        ),
        "both faults": conf(
            "export NCCL_DEBUG='WARN'\nNCCL_IB_TC=106", environment(NCCL_IB_TC="41")
        ),
        "a file that is missing": environment(NCCL_CONF_FILE="/etc/mine.conf"),
        "a file that cannot be read": lambda tree: tree.error(
            "/etc/nccl.conf", "permission denied"
        ),
    },
    "nccl-cross-nic": {
        **set_to("NCCL_CROSS_NIC", "0", "2", "3"),
        "one port": on(healthy(ports=1), environment(NCCL_CROSS_NIC="1")),
        "two ports": on(healthy(ports=2), environment(NCCL_CROSS_NIC="1")),
    },
    "nccl-net-gdr-level": (
        set_to("NCCL_NET_GDR_LEVEL", "0", "1", "4", "5", "LOC", "PIX", "pix", "far")
        | set_to("NCCL_IB_GDR_LEVEL", "3", "PHB")
    ),
    "nccl-gid-index": {
        **set_to("NCCL_IB_GID_INDEX", "2", "9"),
        "NCCL 2.20": combine(environment(**GID), version("2.20.5")),
        "NCCL 2.20 with another type": combine(
            environment(NCCL_IB_GID_INDEX="2"), version("2.20.5")
        ),
        "NCCL 2.21": combine(environment(**GID), version("2.21")),
        "NCCL of no known version": combine(
            environment(**GID), lambda tree: tree.call("nccl-libraries", "[]")
        ),
        "no port": on(NO_PORT, environment(**GID)),
        "nothing is known": on(blind(healthy()), environment(**GID)),
    },
    "gloo-socket-ifname": {
        **set_to("GLOO_SOCKET_IFNAME", "eth1", "eth1,eth77", "lo"),
        "absent, with a choice of NCCL": environment(
            GLOO_SOCKET_IFNAME="eth77", NCCL_SOCKET_IFNAME="eth3"
        ),
        "absent, with lo for NCCL": environment(
            GLOO_SOCKET_IFNAME="eth77", NCCL_SOCKET_IFNAME="lo"
        ),
        "absent, with no choice of NCCL": environment(
            GLOO_SOCKET_IFNAME="eth77", NCCL_SOCKET_IFNAME="ib9"
        ),
        "NCCL has no choice": environment(GLOO_SOCKET_IFNAME="eth1", NCCL_SOCKET_IFNAME="ib9"),
        "the same as NCCL": environment(GLOO_SOCKET_IFNAME="eth1,eth2", NCCL_SOCKET_IFNAME="eth2"),
        "nothing is known": on(blind(healthy()), environment(GLOO_SOCKET_IFNAME="eth1")),
    },
    "nccl-ib-disable": {
        **set_to("NCCL_IB_DISABLE", "0"),
        "one port is up": combine(
            environment(NCCL_IB_DISABLE="1"),
            lambda tree: [
                tree.file(f"/sys/class/infiniband/mlx5_{index}/ports/1/state", "1: DOWN")
                for index in range(7)
            ],
        ),
        "no port": on(NO_PORT, environment(NCCL_IB_DISABLE="1")),
        "EFA": on(
            healthy(ports=1),
            combine(
                environment(NCCL_IB_DISABLE="1"),
                lambda tree: tree.link(
                    "/sys/class/infiniband/mlx5_0/device/driver", "../../../../bus/pci/drivers/efa"
                ),
            ),
        ),
    },
    "nccl-ib-hca": {
        **set_to(
            "NCCL_IB_HCA",
            "mlx5",
            "=mlx5_0,mlx5_1",
            "^mlx5_0",
            "^mlx5_77",
            "^=mlx5_77",
            "^mlx5",
            "irdma",
        ),
        "a slow port": combine(environment(NCCL_IB_HCA="mlx5"), two_ports_of("mlx5_3")),
        "a slow port among named ones": combine(
            environment(NCCL_IB_HCA="=mlx5_3,mlx5_4:1"), two_ports_of("mlx5_3")
        ),
        "a prefix": on(healthy(ports=11), environment(NCCL_IB_HCA="mlx5_1")),
        "prefixes with ports": on(healthy(ports=11), environment(NCCL_IB_HCA="mlx5_0:2,mlx5_1:2")),
        "ports of a device that is missing": environment(NCCL_IB_HCA="=mlx5_0:1,mlx5_77:1"),
        "names with ports on an unknown machine": on(
            NO_PORT, environment(NCCL_IB_HCA="mlx5_0:2,mlx5_1:2")
        ),
        "a prefix without a number on an unknown machine": on(
            NO_PORT, environment(NCCL_IB_HCA="mlx5,mlx5_1,cxgb4,bnxt_re")
        ),
        "names on an unknown machine": on(NO_PORT, environment(NCCL_IB_HCA="=mlx5_0")),
        "whole names of several drivers on an unknown machine": on(
            NO_PORT,
            environment(NCCL_IB_HCA="bnxt_re0:1,rocep1s0f0,irdma0,ibp12s0,mlx5_bond_1,erdma"),
        ),
    },
    "nccl-ib-qps": {
        **set_to("NCCL_IB_QPS_PER_CONNECTION", "0", "1", "2", "128", "129"),
        "one of a bond": combine(bonded, environment(NCCL_IB_QPS_PER_CONNECTION="1")),
        "two of a bond": combine(bonded, environment(NCCL_IB_QPS_PER_CONNECTION="2")),
        "a bond of one": lambda tree: (
            bonded(tree),
            tree.file("/sys/class/net/bond0/bonding/slaves", "eth0"),
        ),
    },
    "nccl-ib-tc": (
        set_to("NCCL_IB_TC", "0", "106", "255", "256", "-1")
        | {
            "no port": on(NO_PORT, environment(NCCL_IB_TC="106")),
            "InfiniBand": on(INFINIBAND, environment(NCCL_IB_TC="106")),
            "nothing is known": on(blind(healthy()), environment(NCCL_IB_TC="106")),
            "two ports cannot be read": combine(
                environment(NCCL_IB_TC="106"),
                lambda tree: [
                    tree.drop(f"/sys/class/infiniband/mlx5_{index}/tc") for index in (3, 5)
                ],
            ),
            "a port without a class": combine(
                environment(NCCL_IB_TC="0"),
                lambda tree: tree.file("/sys/class/infiniband/mlx5_3/tc/1/traffic_class", ""),
            ),
        }
    ),
    "nccl-ib-timeout": {
        **set_to("NCCL_IB_TIMEOUT", "0", "1", "19", "20", "22", "31", "32"),
        "NCCL 2.22": combine(environment(NCCL_IB_TIMEOUT="17"), version("2.22.3")),
        "NCCL 2.14": combine(environment(NCCL_IB_TIMEOUT="17"), version("2.14.0")),
        "NCCL 2.13": combine(environment(NCCL_IB_TIMEOUT="14"), version("2.13.4")),
        "NCCL 2.13 with less": combine(environment(NCCL_IB_TIMEOUT="13"), version("2.13.4")),
        "NCCL 2.23": combine(environment(NCCL_IB_TIMEOUT="19"), version("2.23")),
        "NCCL of no known version": combine(
            environment(NCCL_IB_TIMEOUT="19"), lambda tree: tree.call("nccl-libraries", "[]")
        ),
    },
    "nccl-names": set_to("NCCL_IB_HCAS", "mlx5") | set_to("NCCL_DEBUG", "WARN"),
    "nccl-nvls": {
        **set_to("NCCL_NVLS_ENABLE", "1", "2"),
        "one GPU of another generation": combine(environment(NCCL_NVLS_ENABLE="0"), changed(sm=80)),
        "A100": combine(
            environment(NCCL_NVLS_ENABLE="0"), all_changed(sm=80, name="NVIDIA A100-SXM4-80GB")
        ),
        "one GPU": on(healthy(gpus=1), environment(NCCL_NVLS_ENABLE="0")),
        "no NVSwitch": combine(
            environment(NCCL_NVLS_ENABLE="0"),
            all_changed(links=[link | {"remote": 1} for link in links()]),
        ),
    },
    "nccl-p2p-disable": (
        set_to("NCCL_P2P_DISABLE", "0")
        | set_to("NCCL_P2P_LEVEL", "LOC", "0", "NVL", "5", "far")
        | {
            "no GPU": on(healthy(gpus=0), environment(NCCL_P2P_DISABLE="1")),
            "one GPU": on(healthy(gpus=1), environment(NCCL_P2P_DISABLE="1")),
            "no NVLink": combine(
                environment(NCCL_P2P_DISABLE="1"),
                lambda tree: tree.update(
                    "nvml",
                    gpus=[
                        gpu | {"nvlink": []}
                        for gpu in json.loads(tree.calls["nvml"]["text"])["gpus"]
                    ],
                ),
            ),
        }
    ),
    "nccl-net-plugin": {
        **set_to("NCCL_NET_PLUGIN", "none", "NONE,static_plugin"),
        "one that is there": with_variable(
            "NCCL_NET_PLUGIN", "ofi", call="nccl-plugin net ofi", answer="/opt/libnccl-net-ofi.so"
        ),
        "a list": combine(
            with_variable(
                "NCCL_NET_PLUGIN",
                "ofi,/opt/b.so",
                call="nccl-plugin net ofi",
                answer="/opt/libnccl-net-ofi.so",
            ),
            lambda tree: tree.call("nccl-plugin net /opt/b.so", "/opt/b.so"),
        ),
        "not known": environment(NCCL_NET_PLUGIN="ofi"),
    },
    "nccl-proto": set_to("NCCL_PROTO", "Simple", "^LL128", "allreduce:LL128;^LL"),
    "nccl-socket-ifname": {
        **set_to("NCCL_SOCKET_IFNAME", "eth", "=eth0,eth1", "^eth", "lo", "eth1,lo"),
        "virtual": combine(
            environment(NCCL_SOCKET_IFNAME="=virbr0"), bridge("virbr0", "172.17.0.1/16")
        ),
        "virtual and another": combine(
            environment(NCCL_SOCKET_IFNAME="=virbr0,eth1"), bridge("virbr0", "172.17.0.1/16")
        ),
        "docker": combine(
            environment(NCCL_SOCKET_IFNAME="=docker0"), bridge("docker0", "172.17.0.1/16")
        ),
        "docker and another": combine(
            environment(NCCL_SOCKET_IFNAME="=docker0,eth1"), bridge("docker0", "172.17.0.1/16")
        ),
        "a prefix": combine(environment(NCCL_SOCKET_IFNAME="eth1"), bridge("eth10", "10.9.0.1/16")),
        "a bridge that NCCL may choose": bridge("virbr0", "192.168.122.1/24"),
        "a bridge without an address": bridge("cali1", ""),
        "a bridge on InfiniBand": on(INFINIBAND, bridge("virbr0", "192.168.122.1/24")),
        "nothing is known": on(blind(healthy()), environment(NCCL_SOCKET_IFNAME="eth1")),
        "no interface": blind(healthy()),
        "nothing is known of the hosts": on(
            Tree().call("environment", "{}").call("home", HOME),
            environment(NCCL_SOCKET_IFNAME="eth1"),
        ),
    },
    "nccl-socket-threads": {
        "few": environment(NCCL_SOCKET_NTHREADS="4", NCCL_NSOCKS_PERTHREAD="4"),
        "the most": environment(NCCL_SOCKET_NTHREADS="8", NCCL_NSOCKS_PERTHREAD="8"),
        "without RDMA": on(
            NO_PORT, environment(NCCL_SOCKET_NTHREADS="4", NCCL_NSOCKS_PERTHREAD="4")
        ),
        "the most without RDMA": on(
            NO_PORT, environment(NCCL_SOCKET_NTHREADS="8", NCCL_NSOCKS_PERTHREAD="8")
        ),
        "too many without RDMA": on(
            NO_PORT, environment(NCCL_SOCKET_NTHREADS="13", NCCL_NSOCKS_PERTHREAD="5")
        ),
        "threads alone": environment(NCCL_SOCKET_NTHREADS="4"),
        "sockets alone": environment(NCCL_NSOCKS_PERTHREAD="4"),
    },
    "nccl-topo-file": {
        "no topology": combine(
            environment(NCCL_TOPO_FILE="/t.xml"),
            lambda tree: tree.file("/t.xml", "x" * 90 + "\nsecond"),
        ),
        "a topology": combine(
            environment(NCCL_TOPO_FILE="/t.xml"),
            lambda tree: tree.file("/t.xml", '<system version="1"/>'),
        ),
        "half of a topology": combine(
            environment(NCCL_TOPO_FILE="/t.xml"),
            lambda tree: tree.file("/t.xml", '<system version="1">\n <cpu numaid="0">\n  <pc'),
        ),
        "not allowed": combine(
            environment(NCCL_TOPO_FILE="/t.xml"),
            lambda tree: tree.error("/t.xml", "permission denied"),
        ),
        "a virtual machine": combine(
            environment(NCCL_TOPO_FILE="/t.xml"),
            lambda tree: tree.file("/t.xml", '<system version="1"/>').files(
                "/sys/class/dmi/id", sys_vendor="QEMU"
            ),
        ),
    },
    "nccl-values": (
        set_to("NCCL_P2P_DISABLE", "1", "-1", "+1", "1x", "yes", "off", "x1", " 1")
        | set_to("NCCL_LOCAL_REGISTER", "true")
        | set_to("MY_ENABLE", "true")
    ),
    "cuda-visible-devices": {
        **set_to(
            "CUDA_VISIBLE_DEVICES",
            "",
            "0,1,2,3,4,5,6,7",
            "7,8,0",
            "-1",
            "0,0,1,2,3,4,5,6",
            "GPU-1,0",
        ),
        "no GPU": on(healthy(gpus=0), environment(CUDA_VISIBLE_DEVICES="0")),
        "GPUs are not known": combine(
            environment(CUDA_VISIBLE_DEVICES="0"),
            lambda tree: tree.failing("nvml", "the driver does not answer"),
        ),
    },
}
