"""--ifname in NCCL's syntax or as a network, translated for MPI, NCCL and Gloo."""

import os
import socket
from ipaddress import IPv4Interface

import pytest

from busbw.core.errors import NoMeasurement, UsageError
from busbw.launch import interfaces

HAVE = {
    "lo": IPv4Interface("127.0.0.1/8"),
    "eth0": IPv4Interface("10.1.2.3/16"),
    "eth1": IPv4Interface("10.2.2.3/16"),
    "docker0": IPv4Interface("172.17.0.1/16"),
    "ib0": None,
}


@pytest.mark.parametrize(
    ("text", "names", "mpi", "nccl"),
    [
        ("eth0", ("eth0",), "eth0", "eth0"),
        ("eth", ("eth0", "eth1"), "eth0,eth1", "eth"),
        ("=eth0", ("eth0",), "eth0", "=eth0"),
        ("=eth0,eth1", ("eth0", "eth1"), "eth0,eth1", "=eth0,eth1"),
        ("^docker", ("eth0", "eth1"), "eth0,eth1", "^docker"),
        ("^=eth1,docker0", ("eth0",), "eth0", "^=eth1,docker0"),
        ("ib", ("ib0",), "ib0", "ib"),
        ("10.1.0.0/16", ("eth0",), "10.1.0.0/16", "=eth0"),
        ("10.1.2.3/16", ("eth0",), "10.1.0.0/16", "=eth0"),
        ("10.0.0.0/8", ("eth0", "eth1"), "10.0.0.0/8", "=eth0,eth1"),
    ],
)
def test_interface_syntax_of_each_library(text, names, mpi, nccl):
    assert interfaces.resolve(text, HAVE) == names
    assert interfaces.for_mpi(text, HAVE) == mpi
    assert interfaces.for_nccl(text, HAVE) == nccl


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("=lo,eth0", "eth0"),
        ("=ib0,eth1", "eth1"),
        ("=lo", "lo"),
        ("eth", "eth0"),
        ("10.2.0.0/16", "10.2.0.0/16"),
    ],
)
def test_prrte_gets_one_name_that_other_hosts_can_reach(text, name):
    assert interfaces.for_prrte(text, HAVE) == name


@pytest.mark.parametrize("text", ["bond0", "=eth", "192.168.0.0/24"])
def test_an_unknown_interface_lists_the_existing_ones(text):
    with pytest.raises(UsageError, match="no such interface") as caught:
        interfaces.resolve(text, HAVE)
    assert "eth0 (10.1.2.3/16)" in caught.value.hint
    assert "ib0" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("10.1.0.0/40", "not an IPv4 network"),
        ("eth0,", "a name is missing"),
        ("^", "a name is missing"),
    ],
)
def test_invalid_arguments_are_refused(text, words):
    with pytest.raises(UsageError, match=words) as caught:
        interfaces.resolve(text, HAVE)
    assert "10.1.0.0/16" in caught.value.hint


def test_this_machine_has_a_loopback():
    address = interfaces.local()["lo"]
    assert address == IPv4Interface("127.0.0.1/8")


def test_a_rank_sets_its_own_hosts_names(monkeypatch):
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "before")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "before")
    interfaces.set_interface_variables({})
    assert os.environ["NCCL_SOCKET_IFNAME"] == "before"
    interfaces.set_interface_variables({interfaces.VARIABLE: "127.0.0.0/8"})
    assert (os.environ["NCCL_SOCKET_IFNAME"], os.environ["GLOO_SOCKET_IFNAME"]) == ("=lo", "lo")
    with pytest.raises(NoMeasurement, match="no such interface") as caught:
        interfaces.set_interface_variables({interfaces.VARIABLE: "nosuch9"})
    assert "CIDR" in caught.value.hint


def test_no_interface_for_loopback_or_no_route():
    assert interfaces.towards("127.0.0.1") is None
    assert interfaces.towards("no-such-host.invalid") is None


@pytest.mark.skipif(
    all(name == "lo" for name, address in interfaces.local().items() if address),
    reason="no network interface but loopback",
)
def test_the_interface_towards_an_address_is_the_one_that_has_the_route():
    name, address = next(
        (name, address)
        for name, address in interfaces.local().items()
        if address and not address.ip.is_loopback
    )
    assert interfaces.towards(str(address.ip)) == name


@pytest.mark.parametrize(
    ("peer", "leads", "before", "after"),
    [
        ("10.1.2.3", False, "eth9", "eth9"),
        ("10.1.2.3", True, None, None),
        ("10.1.2.3", False, None, "eth7"),
        ("127.0.0.1", False, None, None),
    ],
)
def test_gloo_gets_a_name_only_where_it_would_listen_on_loopback(
    monkeypatch, peer, leads, before, after
):
    monkeypatch.setattr(interfaces, "own_name_leads_here", lambda: leads)
    monkeypatch.setattr(interfaces, "towards", {"10.1.2.3": "eth7"}.get)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", before or "")
    interfaces.name_for_gloo(peer)
    assert (os.environ["GLOO_SOCKET_IFNAME"] or None) == after


@pytest.mark.parametrize(("address", "leads"), [("127.0.1.1", False), ("10.1.2.3", True)])
def test_a_host_name_on_loopback_is_not_reachable(monkeypatch, address, leads):
    monkeypatch.setattr(socket, "gethostname", lambda: address)  # an address is its own name
    assert interfaces.own_name_leads_here() is leads
