"""Which ports form a rail."""

import pytest

from busbw.core.errors import NoMeasurement, UsageError
from busbw.host.endpoints import Endpoint
from busbw.link import schedule

HOSTS = ("h1", "h2", "h3")


def port(name, address, network, device=""):
    return Endpoint(name=name, address=address, network=network, device=device)


def host(number, *, last=True):
    ports = [
        port("docker0", "172.17.0.1", "172.17.0.0/16"),
        port("eth0", f"10.0.0.{number}", "10.0.0.0/24"),
        port("rdma0", f"10.1.0.{number}", "10.1.0.0/24", "mlx5_0"),
    ]
    return [*ports, port("rdma1", f"10.2.0.{number}", "10.2.0.0/24", "mlx5_1")] if last else ports


PORTS = [host(1), host(2), host(3, last=False)]


def names(rail):
    return [port.name if port else None for port in rail.endpoints]


def test_all_shared_networks_are_rails():
    rails = schedule.choose(["all"], PORTS, HOSTS)
    assert [rail.name for rail in rails] == ["10.0.0.0/24", "10.1.0.0/24", "10.2.0.0/24"]
    assert names(rails[2]) == ["rdma1", "rdma1", None]


def test_a_bridge_with_one_address_on_all_hosts_joins_none():
    bridge = [[port("docker0", "172.17.0.1", "172.17.0.0/16")] for _ in HOSTS]
    assert schedule.common(bridge) == []
    with pytest.raises(
        NoMeasurement, match="no two of h1, h2, h3 have a port on the same network"
    ) as caught:
        schedule.choose([], bridge, HOSTS)
    assert "docker0 (172.17.0.0/16)" in caught.value.hint


@pytest.mark.parametrize(
    ("option", "ports"),
    [
        ("rdma1", ["rdma1", "rdma1", None]),
        ("mlx5_0", ["rdma0"] * 3),
        ("10.1.0.0/16", ["rdma0"] * 3),
        ("eth", ["eth0"] * 3),
    ],
)
def test_a_rail_is_named_by_interface_device_or_network(option, ports):
    assert [names(rail) for rail in schedule.choose([option], PORTS, HOSTS)] == [ports]


def test_an_exact_name_comes_before_one_that_begins_with_it():
    ports = [
        [port("eth10", "10.5.0.1", "10.5.0.0/24"), port("eth1", "10.6.0.1", "10.6.0.0/24")]
    ] * 2
    assert names(schedule.choose(["eth1"], ports, HOSTS)[0]) == ["eth1", "eth1"]


def test_several_rails_keep_their_order():
    assert [rail.name for rail in schedule.choose(["rdma1", "eth0"], PORTS, HOSTS)] == [
        "rdma1",
        "eth0",
    ]


def test_without_a_choice_the_network_of_the_names_is_used():
    assert schedule.choose([], PORTS, ("10.1.0.1", "10.1.0.2", "10.1.0.3"))[0].name == "10.1.0.0/24"


def test_names_that_only_ssh_knows_use_the_network_of_most_hosts():
    few_first = [[*reversed(host_ports)] for host_ports in PORTS]
    assert schedule.choose([], few_first, ("no-such-host.invalid",) * 3)[0].name == "10.1.0.0/24"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("rdma7", "--rail rdma7: 0 of 3 hosts have such a port"),
        ("10.9.0.0/16", "--rail 10.9.0.0/16: 0 of 3 hosts"),
        ("10.9.0.0/99", "not an IPv4 network"),
    ],
)
def test_a_rail_that_no_hosts_have_is_refused(option, message):
    with pytest.raises(UsageError, match=message):
        schedule.choose([option], PORTS, HOSTS)


def test_a_lost_host_has_no_port():
    assert names(schedule.choose(["eth0"], [PORTS[0], [], PORTS[2]], HOSTS)[0]) == [
        "eth0",
        None,
        "eth0",
    ]
