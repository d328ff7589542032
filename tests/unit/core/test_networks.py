"""The table of networks: NCCL is told the name that its log is later searched for."""

import pytest

from busbw.core.networks import CHANNEL_VARIABLES, NETWORKS, Network, blocks, channels, chosen


@pytest.mark.parametrize("row", NETWORKS, ids=lambda row: row.name)
def test_nccl_is_told_the_network_by_its_own_name_so_that_it_takes_no_other(row: Network) -> None:
    assert row.variables["NCCL_NET"] == row.nccl
    assert row.nccl.lower() == row.name


def test_nccls_own_sockets_are_chosen_against_whatever_plugin_an_image_has() -> None:
    (socket,) = (row for row in NETWORKS if row.name == "socket")
    assert socket.variables == {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none", "NCCL_IB_DISABLE": "1"}


def test_a_link_gets_the_channels_that_it_takes_to_fill_it_and_an_unknown_one_those_of_a_fast_one() -> None:
    gbit = 1e9 / 8
    assert [channels(rate * gbit) for rate in (10, 25, 50, 100, 200, 400)] == [0, 0, 0, 4, 8, 16]
    assert channels(None) == 8


def test_blocks_of_many_channels_are_narrow_where_they_may_be() -> None:
    assert blocks(0, narrow=True) == {}
    assert blocks(4, narrow=True) == {"NCCL_MIN_NCHANNELS": "4"}
    assert blocks(8, narrow=False) == {"NCCL_MIN_NCHANNELS": "8"}
    assert blocks(16, narrow=True) == {"NCCL_MIN_NCHANNELS": "16", "NCCL_NTHREADS": "256"}


@pytest.mark.parametrize("name", CHANNEL_VARIABLES)
def test_whoever_has_chosen_channels_keeps_them(name: str) -> None:
    assert chosen({name: "2"})
    assert not chosen({name: ""})


def test_nccls_own_infiniband_gets_no_plugin_that_an_image_has() -> None:
    (ib,) = (row for row in NETWORKS if row.name == "ib")
    assert ib.variables["NCCL_NET_PLUGIN"] == "none"
