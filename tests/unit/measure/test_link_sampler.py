"""Traffic of links between two rows, on the interfaces of this machine."""

import socket

import pytest

from busbw.core.result import RankDevice
from busbw.measure.host_sampler import HostSampler
from busbw.measure.link_sampler import LinkSampler

OWN = [RankDevice(0, 1, "h1", 0, "", "CPU")]
links = pytest.mark.skipif(
    all(name == "lo" for _, name in socket.if_nameindex()),
    reason="no network interface but loopback",
)


@links
def test_each_row_has_the_increase_since_the_last():
    sampler = LinkSampler(OWN)
    carried, resent = sampler.row()
    assert carried and all(link.sent is not None and 0 <= link.sent < 1e9 for link in carried)
    assert resent is not None and resent >= 0
    sampler.close()


@links
def test_a_host_is_watched_on_request_alone():
    for watch in (False, True):
        sampler = HostSampler(OWN, watch=watch)
        sampler.begin()
        change = sampler.row()
        assert change is not None and bool(change.links) == watch
        assert (change.resent is not None) == watch
        sampler.close()


def test_other_processes_of_a_host_read_nothing():
    sampler = HostSampler((), watch=True)
    sampler.begin()
    assert sampler.row() is None
    sampler.close()
