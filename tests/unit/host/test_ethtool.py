"""Statistics and driver of real interfaces, and of recorded ones."""

import array
import fcntl
import socket
import struct

import pytest
from tree import Tree

from busbw.host import ethtool
from busbw.host.source import LiveMachine

SIOCETHTOOL = 0x8946


def test_real_interface_has_statistics_and_a_driver(veth):
    counters, driver = ethtool.statistics(LiveMachine(), veth), ethtool.driver(LiveMachine(), veth)
    assert isinstance(counters, dict) and "peer_ifindex" in counters
    assert isinstance(driver, ethtool.Driver) and driver.name == "veth"
    often = ethtool.Statistics(veth)
    assert often.read() == counters
    often.close()


def with_queues(interface: str, count: int) -> None:
    """`ethtool -L`: its number of receive queues, of which each has statistics."""
    get, set_channels = 0x3C, 0x3D  # ETHTOOL_GCHANNELS, ETHTOOL_SCHANNELS
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control_socket:
        channels = array.array("I", [get, *[0] * 8])
        request = struct.pack("16sP", interface.encode(), channels.buffer_info()[0]).ljust(
            40, b"\0"
        )
        fcntl.ioctl(control_socket, SIOCETHTOOL, request)
        channels[0], channels[5] = set_channels, count
        try:
            fcntl.ioctl(control_socket, SIOCETHTOOL, request)
        except OSError as error:
            pytest.skip(f"the number of queues is fixed: {error}")


def test_statistics_may_become_more_while_they_are_followed(veth):
    with_queues(veth, 1)
    often = ethtool.Statistics(veth)
    counters_before = often.read()
    with_queues(veth, 6)
    more = often.read()
    assert (
        len(more) > len(counters_before)
        and more.keys() == ethtool.statistics(LiveMachine(), veth).keys()
    )
    with_queues(veth, 1)
    assert often.read().keys() == counters_before.keys()
    often.close()


def test_reason_is_given_where_there_are_none():
    assert ethtool.statistics(LiveMachine(), "lo") == "lo has no statistics"
    assert ethtool.statistics(LiveMachine(), "not-there") == "not-there: no such interface"
    assert ethtool.driver(LiveMachine(), "not-there") == "not-there: no such interface"
    assert ethtool.driver(LiveMachine(), "lo") == "lo: operation not supported"


def test_recorded_statistics():
    tree = (
        Tree()
        .call("ethtool -S eth0", '{"rx_bytes_phy": 5}')
        .call(
            "ethtool -i eth0",
            '{"name": "mlx5_core", "version": "", "firmware": "28.41", "bus": ""}',
        )
    )
    assert ethtool.statistics(tree.source(), "eth0") == {"rx_bytes_phy": 5}
    driver = ethtool.driver(tree.source(), "eth0")
    assert isinstance(driver, ethtool.Driver) and driver.firmware == "28.41"
