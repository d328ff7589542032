"""Special cases of ports in sysfs: bonds, virtual functions, ports that are down, two ports on
one device.
"""

import json

import pytest

from busbw.core.topology import Nic
from busbw.host.interfaces import read_interfaces
from busbw.host.nic import read_nics
from busbw.host.snapshot import parse_archive
from busbw.host.source import Source


def machine(
    files: dict[str, str],
    links: dict[str, str] | None = None,
    names: dict[str, list[str]] | None = None,
) -> Source:
    entries: list[dict[str, object]] = [{"schema": "busbw.host/1"}]
    entries += [{"path": path, "text": text + "\n"} for path, text in files.items()]
    entries += [{"path": path, "link": target} for path, target in (links or {}).items()]
    entries += [{"path": path, "names": children} for path, children in (names or {}).items()]
    return parse_archive("\n".join(map(json.dumps, entries)))


def interface(name: str, speed: int, state: str = "up") -> dict[str, str]:
    return {
        f"/sys/class/net/{name}/speed": str(speed),
        f"/sys/class/net/{name}/operstate": state,
        f"/sys/class/net/{name}/mtu": "9000",
    }


def port(
    device: str, rate: str, layer: str, number: int = 1, state: str = "4: ACTIVE"
) -> dict[str, str]:
    base = f"/sys/class/infiniband/{device}/ports/{number}"
    return {f"{base}/rate": rate, f"{base}/link_layer": layer, f"{base}/state": state}


def device_of(*names: str) -> dict[str, str]:
    return {f"/sys/class/{name}/device": "../../../0000:c5:00.0" for name in names}


def only(nics: list[Nic]) -> Nic:
    assert len(nics) == 1, nics
    return nics[0]


@pytest.mark.parametrize(
    ("mode", "second", "rate"),
    [("802.3ad 4", "up", 25e9), ("802.3ad 4", "down", 12.5e9), ("active-backup 1", "up", 12.5e9)],
)
def test_a_bond_has_the_total_rate_of_its_slaves_that_are_up(
    mode: str, second: str, rate: float
) -> None:
    files = (
        interface("eth1", 100000) | interface("eth2", 100000, second) | interface("bond0", 12345)
    )
    files |= {
        "/sys/class/net/bond0/bonding/slaves": "eth1 eth2",
        "/sys/class/net/bond0/bonding/mode": mode,
    }
    nic = only(read_nics(machine(files, device_of("net/eth1", "net/eth2"))))
    assert (nic.name, nic.kind, nic.rate, nic.virtual, nic.slaves) == (
        "bond0",
        "ethernet",
        rate,
        False,
        ["eth1", "eth2"],
    )


def test_a_bond_with_a_slave_of_unknown_speed_is_unknown() -> None:
    files = interface("eth1", 100000) | interface("eth2", -1) | interface("bond0", 100000)
    files |= {
        "/sys/class/net/bond0/bonding/slaves": "eth1 eth2",
        "/sys/class/net/bond0/bonding/mode": "802.3ad 4",
    }
    assert only(read_nics(machine(files, device_of("net/eth1", "net/eth2")))).rate is None


@pytest.mark.parametrize(("mbits", "rate"), [(0, None), (1, 125_000.0)])
def test_a_speed_of_zero_is_unknown(mbits: int, rate: float | None) -> None:
    assert only(read_nics(machine(interface("eth1", mbits), device_of("net/eth1")))).rate == rate


def test_a_bond_with_a_virtual_slave_is_virtual() -> None:
    files = interface("eth1", 10000) | interface("veth1", 10000) | interface("bond0", 10000)
    files |= {"/sys/class/net/bond0/bonding/slaves": "eth1 veth1"}
    assert only(read_nics(machine(files, device_of("net/eth1")))).virtual


def test_a_bond_of_virtual_interfaces_is_virtual() -> None:
    files = (
        interface("veth1", 10000)
        | interface("bond0", 10000)
        | {"/sys/class/net/bond0/bonding/slaves": "veth1"}
    )
    bond = only(read_nics(machine(files)))
    assert (bond.name, bond.virtual, bond.rate) == ("bond0", True, None)


def test_rdma_devices_of_a_bond_have_their_slaves_rates() -> None:
    files = interface("eth1", 100000) | interface("eth2", 100000) | interface("bond0", 200000)
    files |= {"/sys/class/net/bond0/bonding/slaves": "eth1 eth2"}
    files |= port("mlx5_0", "100 Gb/sec (4X EDR)", "Ethernet") | port(
        "mlx5_1", "100 Gb/sec (4X EDR)", "Ethernet"
    )
    links = device_of("net/eth1", "net/eth2", "infiniband/mlx5_0", "infiniband/mlx5_1")
    names = {
        "/sys/class/infiniband/mlx5_0/device/net": ["eth1"],
        "/sys/class/infiniband/mlx5_1/device/net": ["eth2"],
    }
    nics = read_nics(machine(files, links, names))
    assert [(nic.name, nic.rate, nic.netdev) for nic in nics] == [
        ("mlx5_0", 12.5e9, "bond0"),
        ("mlx5_1", 12.5e9, "bond0"),
    ]


def test_a_port_that_is_down_has_no_rate() -> None:
    files = port("mlx5_0", "10 Gb/sec (4X SDR)", "InfiniBand", state="1: DOWN")
    nic = only(read_nics(machine(files, device_of("infiniband/mlx5_0"))))
    assert (nic.up, nic.rate, nic.kind) == (False, None, "ib")


def test_two_ports_of_a_device_are_two_nics() -> None:
    files = port("mlx4_0", "40 Gb/sec (4X QDR)", "InfiniBand", 1) | port(
        "mlx4_0", "25 Gb/sec (1X EDR)", "Ethernet", 2
    )
    files |= interface("ib0", 40000) | interface("eth0", 25000)
    files |= {"/sys/class/net/ib0/dev_port": "0", "/sys/class/net/eth0/dev_port": "1"}
    links = device_of("infiniband/mlx4_0", "net/ib0", "net/eth0")
    nics = read_nics(
        machine(files, links, {"/sys/class/infiniband/mlx4_0/device/net": ["eth0", "ib0"]})
    )
    assert [(nic.name, nic.kind, nic.rate, nic.netdev) for nic in nics] == [
        ("mlx4_0:1", "ib", 5e9, "ib0"),
        ("mlx4_0:2", "roce", 3.125e9, "eth0"),
    ]


def test_a_virtual_function_is_not_counted_twice() -> None:
    links = device_of("net/eth0", "net/eth0v0") | {
        "/sys/class/net/eth0v0/device/physfn": "../0000:c5:00.0"
    }
    nics = read_nics(machine(interface("eth0", 100000) | interface("eth0v0", 100000), links))
    assert [(nic.name, nic.virtual, nic.rate) for nic in nics] == [
        ("eth0", False, 12.5e9),
        ("eth0v0", True, None),
    ]


def test_software_rdma_on_a_virtual_interface_is_virtual() -> None:
    files = port("rxe0", "10 Gb/sec (1X QDR)", "Ethernet") | interface("veth0", 10000)
    files |= {"/sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0": "veth0"}
    nic = only(read_nics(machine(files)))
    assert (nic.name, nic.netdev, nic.virtual, nic.rate) == ("rxe0", "veth0", True, None)


def test_loopback_and_bonding_masters_are_skipped() -> None:
    files = (
        interface("lo", -1) | interface("eth0", 1000) | {"/sys/class/net/bonding_masters": "bond0"}
    )
    assert list(read_interfaces(machine(files))) == ["eth0"]
