"""Statistics and driver of real interfaces, and of recorded ones."""

import os
import subprocess
import uuid

import pytest
from tree import Tree

from busbw.host import ethtool
from busbw.host.source import Live


@pytest.fixture
def veth():
    """A pair of virtual interfaces; gives the name of one."""
    if os.geteuid() != 0:
        pytest.skip("needs root to make an interface")
    name = f"e{uuid.uuid4().hex[:8]}"
    done = subprocess.run(["ip", "link", "add", name, "type", "veth", "peer", f"{name}p"], capture_output=True, text=True, timeout=20)
    if done.returncode:
        pytest.skip(f"cannot make an interface: {done.stderr.strip()}")
    yield name
    subprocess.run(["ip", "link", "del", name], timeout=20, capture_output=True)


def test_real_interface_has_statistics_and_a_driver(veth):
    found, driver = ethtool.statistics(Live(), veth), ethtool.driver(Live(), veth)
    assert isinstance(found, dict) and "peer_ifindex" in found
    assert isinstance(driver, ethtool.Driver) and driver.name == "veth"
    often = ethtool.Statistics(veth)
    assert often.read() == found
    often.close()


def test_reason_is_given_where_there_are_none():
    assert ethtool.statistics(Live(), "lo") == "lo has no statistics"
    assert ethtool.statistics(Live(), "not-there") == "not-there: no such interface"
    assert isinstance(ethtool.driver(Live(), "not-there"), str)


def test_recorded_statistics():
    tree = (
        Tree()
        .call("ethtool -S eth0", '{"rx_bytes_phy": 5}')
        .call("ethtool -i eth0", '{"name": "mlx5_core", "version": "", "firmware": "28.41", "bus": ""}')
    )
    assert ethtool.statistics(tree.source(), "eth0") == {"rx_bytes_phy": 5}
    driver = ethtool.driver(tree.source(), "eth0")
    assert isinstance(driver, ethtool.Driver) and driver.firmware == "28.41"
