"""Variants of the layer RoCE: what is named, in which order, and at which limit."""

import json

from cases_nic import NET, PORT, bonded, counter, statistic
from changes_links import containers
from healthy import healthy
from tree import Change, Tree, combine

CONFIGFS = "/sys/kernel/config/rdma_cm/mlx5_3/ports/1"


def dcb(netdev: str = "eth3", **values: object) -> Change:
    """The settings of DCB of an interface."""
    return lambda tree: tree.update(f"dcb {netdev}", **values)


def unclassed(tree: Tree) -> None:
    """Nothing sets the traffic class of mlx5_3's packets."""
    tree.drop("/sys/class/infiniband/mlx5_3/tc")


def nccl_class(value: str) -> Change:
    """NCCL sets it."""
    return combine(unclassed, lambda tree: tree.update("environment", NCCL_IB_TC=value))


def ecn(**parts: tuple[int, ...]) -> Change:
    """The priorities with congestion control."""
    return lambda tree: [
        tree.file(f"{NET}/ecn/{part}/enable/{priority}", str(int(priority in on)))
        for part, on in parts.items()
        for priority in range(8)
    ]


def traffic(**values: int | None) -> Change:
    """Statistics of eth3; None: it has none of this name."""

    def change(tree: Tree) -> None:
        counters = json.loads(tree.calls["ethtool -S eth3"]["text"]) | values
        tree.call(
            "ethtool -S eth3",
            json.dumps({name: value for name, value in counters.items() if value is not None}),
        )

    return change


def setters(*files: dict[str, object]) -> Change:
    """Files that set RoCE at the start."""
    return lambda tree: tree.call("files that set RoCE at the start", json.dumps(list(files)))


def other_model(rate: str) -> Change:
    """A card of another model with this rate."""
    base = "/sys/class/infiniband/mlx5_3"
    return lambda tree: tree.file(f"{base}/board_id", "MT_1").file(
        f"{PORT}/rate", f"{rate} Gb/sec (4X EDR)" if rate else ""
    )


UNIT = {
    "path": "/etc/systemd/system/qos@.service",
    "words": ["mlnx_qos", "cma_roce_tos"],
    "enabled": False,
}


SCRIPT = {"path": "/etc/rc.local", "words": ["mlnx_qos"], "enabled": False}


MORE_ROCE = {
    "roce-alike": {
        "one port": healthy(ports=1),
        "two ports": healthy(ports=2),
        "a range of DSCP": dcb(dscp={"0": 0, "1": 0, "2": 0, "26": 3, "30": 4, "31": 4}),
        "no flow control": dcb(pfc=[]),
        "not readable on one port": lambda tree: tree.drop(f"{NET}/ecn/roce_np"),
        "not readable on most ports": lambda tree: [
            tree.drop(f"/sys/class/net/eth{index}/ecn/roce_rp") for index in range(1, 8)
        ],
        "two settings of two ports": combine(
            dcb(classes=[0, 1, 2, 3, 4, 5, 6, 7]), dcb("eth5", shares=[0, 50, 50, 0, 0, 0, 0, 0])
        ),
        "a bond": bonded(),
    },
    "roce-at-start": {
        "none": setters(),
        "none in a container": combine(setters(), containers),
        "none on a node of Kubernetes": combine(
            setters(), lambda tree: tree.listing("/var/lib/kubelet", "pods")
        ),
        "a unit that does not start": setters(UNIT),
        "a script that does not start": setters(SCRIPT),
        "two of which one starts": setters(SCRIPT, UNIT | {"enabled": True}),
        "firmware of one port": combine(setters(), dcb(host=False)),
        "firmware of all ports": combine(
            setters(), *(dcb(f"eth{index}", host=False) for index in range(8))
        ),
        "not readable": lambda tree: tree.failing(
            "files that set RoCE at the start", "permission denied"
        ),
        "nothing to set": combine(
            *(dcb(f"eth{index}", pfc=[]) for index in range(8)),
            *(
                lambda tree, index=index: tree.file(f"/sys/class/net/eth{index}/qos/trust", "pcp")
                for index in range(8)
            ),
        ),
        "trust alone": combine(*(dcb(f"eth{index}", pfc=[]) for index in range(8))),
    },
    "roce-cm-tos": {
        "another priority": lambda tree: tree.file(f"{CONFIGFS}/default_roce_tos", "0"),
        "the same DSCP": lambda tree: tree.file(f"{CONFIGFS}/default_roce_tos", "104"),
        "the same priority": lambda tree: tree.file(f"{CONFIGFS}/default_roce_tos", "96"),
        "no number": lambda tree: tree.file(f"{CONFIGFS}/default_roce_tos", "none"),
        "two without a directory": (
            lambda tree: tree.drop(CONFIGFS).drop(CONFIGFS.replace("mlx5_3", "mlx5_5"))
        ),
        "no flow control": combine(
            dcb(pfc=[]), lambda tree: tree.file(f"{CONFIGFS}/default_roce_tos", "0")
        ),
        "nothing sets the class": combine(
            unclassed, lambda tree: tree.file(f"{CONFIGFS}/default_roce_tos", "0")
        ),
        "another class of NCCL": combine(
            nccl_class("106"), lambda tree: tree.file(f"{CONFIGFS}/default_roce_tos", "0")
        ),
        "the highest class of NCCL": combine(
            nccl_class("255"), lambda tree: tree.file(f"{CONFIGFS}/default_roce_tos", "0")
        ),
        "no class of NCCL": combine(
            nccl_class("256"), lambda tree: tree.file(f"{CONFIGFS}/default_roce_tos", "0")
        ),
        "the lowest class of NCCL": combine(
            nccl_class("0"), lambda tree: tree.file(f"{CONFIGFS}/default_roce_tos", "8")
        ),
        "below the lowest class of NCCL": combine(
            nccl_class("-1"), lambda tree: tree.file(f"{CONFIGFS}/default_roce_tos", "8")
        ),
        "no environment": lambda tree: (
            unclassed(tree),
            tree.failing("environment", "not in the recording"),
            tree.file(f"{CONFIGFS}/default_roce_tos", "0"),
        ),
    },
    "roce-traffic-class": {
        "nothing sets it": unclassed,
        "NCCL sets it": nccl_class("106"),
        "NCCL sets another": nccl_class("41"),
        "NCCL sets none": nccl_class("256"),
        "no flow control": dcb(pfc=[]),
    },
    "roce-cnp": {
        "exactly the share": combine(counter("rp_cnp_ignored", 1), counter("rp_cnp_handled", 99)),
        "the most first": combine(
            counter("rp_cnp_ignored", 1000),
            lambda tree: tree.file(
                "/sys/class/infiniband/mlx5_5/ports/1/hw_counters/rp_cnp_ignored", "2000"
            ),
        ),
        "not counted": lambda tree: tree.drop(f"{PORT}/hw_counters/rp_cnp_ignored"),
        "in a minute": (
            counter("rp_cnp_ignored", 1000),
            combine(counter("rp_cnp_ignored", 1010), counter("rp_cnp_handled", 4642)),
        ),
        "none in a minute": (counter("rp_cnp_ignored", 1000), counter("rp_cnp_ignored", 1000)),
    },
    "roce-ecn": {
        "one part cannot be read": lambda tree: tree.drop(f"{NET}/ecn/roce_rp"),
        "the other part cannot be read": lambda tree: tree.drop(f"{NET}/ecn/roce_np"),
        "on where it is needed": ecn(roce_np=(3, 4), roce_rp=(2, 3)),
        "no marks": ecn(roce_np=(4,), roce_rp=(3,)),
        "off everywhere": ecn(roce_np=(), roce_rp=()),
        "no flow control, on for two": combine(dcb(pfc=[]), ecn(roce_np=(5, 6), roce_rp=(6, 5, 7))),
        "no flow control, one part off": combine(dcb(pfc=[]), ecn(roce_np=(5,), roce_rp=())),
        "no flow control, off everywhere": combine(dcb(pfc=[]), ecn(roce_np=(), roce_rp=())),
    },
    "roce-priority-traffic": {
        "half": traffic(tx_vport_rdma_unicast_bytes=4 * 10**13, tx_prio3_bytes=2 * 10**13),
        "less than half": traffic(
            tx_vport_rdma_unicast_bytes=4 * 10**13, tx_prio3_bytes=2 * 10**13 - 1
        ),
        "a part of it inside the host": traffic(
            tx_vport_rdma_unicast_bytes=4 * 10**13,
            vport_loopback_bytes=10**13,
            tx_prio3_bytes=15 * 10**12,
        ),
        "enough": traffic(
            tx_vport_rdma_unicast_bytes=10**9, vport_loopback_bytes=None, tx_prio3_bytes=0
        ),
        "not enough": traffic(tx_vport_rdma_unicast_bytes=10**9 - 1, tx_prio3_bytes=0),
        "two priorities": combine(
            dcb(pfc=[3, 4]), traffic(tx_prio3_bytes=10**13, tx_prio4_bytes=2 * 10**13)
        ),
        "no flow control": dcb(pfc=[]),
        "flow control is not known": lambda tree: tree.failing(
            "dcb eth3", "operation not supported"
        ),
        "not counted": traffic(tx_prio0_bytes=None),
        "statistics that fail": lambda tree: tree.failing("ethtool -S eth3", "input/output error"),
    },
    "roce-storm": {
        "the most first": combine(
            statistic(tx_pause_storm_error_events=2),
            lambda tree: tree.update(
                "ethtool -S eth5", tx_pause_storm_error_events=2, tx_pause_storm_warning_events=1
            ),
        ),
        "warnings alone": statistic(tx_pause_storm_warning_events=1),
        "none in a minute": (
            statistic(tx_pause_storm_error_events=2),
            statistic(tx_pause_storm_error_events=2),
        ),
        "one in a minute": (
            statistic(tx_pause_storm_error_events=2),
            statistic(tx_pause_storm_error_events=3),
        ),
    },
    "roce-trust": {
        "a bond": bonded().file("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "bond0"),
        "a slow port of the same model": lambda tree: tree.file(
            f"{PORT}/rate", "100 Gb/sec (4X EDR)"
        ),
        **{
            f"a port of another model with {rate or 'no'} Gbit/s": other_model(rate)
            for rate in ("", "0.5", "100", "200", "201")
        },
        "a VLAN": lambda tree: (
            tree.file(f"{NET}/qos/trust", "pcp").file(f"{NET}/upper_eth3.100/ifindex", "9"),
            tree.file("/sys/class/net/eth3.100/uevent", "DEVTYPE=vlan\nINTERFACE=eth3.100"),
        ),
        "a bridge": lambda tree: (
            tree.file(f"{NET}/qos/trust", "pcp").file(f"{NET}/upper_br0/ifindex", "9"),
            tree.file("/sys/class/net/br0/uevent", "DEVTYPE=bridge"),
        ),
        "a bond of two cards": (
            bonded()
            .file("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "bond0")
            .file("/sys/class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/0", "bond0")
        ),
        "a driver without mlnx_qos": combine(
            lambda tree: tree.file(f"{NET}/qos/trust", "pcp"),
            lambda tree: tree.link(
                "/sys/class/infiniband/mlx5_3/device/driver", "../../../../bus/pci/drivers/irdma"
            ),
        ),
    },
}
