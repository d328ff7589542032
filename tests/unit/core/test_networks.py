"""The table of networks: NCCL_NET has the name that NCCL's log reports."""

import pytest

from busbw.core.networks import (
    CHANNEL_VARIABLES,
    NETWORKS,
    NcclNetwork,
    blocks,
    channels,
    is_network_chosen,
)


@pytest.mark.parametrize("row", NETWORKS, ids=lambda row: row.name)
def test_nccl_net_is_set_to_the_network_name_that_nccl_uses(row: NcclNetwork) -> None:
    assert row.variables["NCCL_NET"] == row.nccl
    assert row.nccl.lower() == row.name


def test_socket_disables_plugins_and_infiniband() -> None:
    (socket,) = (row for row in NETWORKS if row.name == "socket")
    assert socket.variables == {
        "NCCL_NET": "Socket",
        "NCCL_NET_PLUGIN": "none",
        "NCCL_IB_DISABLE": "1",
    }


def test_the_number_of_channels_follows_from_the_link_rate() -> None:
    gbit = 1e9 / 8
    assert [channels(rate * gbit) for rate in (10, 25, 50, 100, 200, 400)] == [0, 0, 0, 4, 8, 16]
    assert channels(None) == 8


def test_blocks_have_fewer_threads_with_many_channels() -> None:
    assert blocks(0, narrow=True) == {}
    assert blocks(4, narrow=True) == {"NCCL_MIN_NCHANNELS": "4"}
    assert blocks(8, narrow=False) == {"NCCL_MIN_NCHANNELS": "8"}
    assert blocks(16, narrow=True) == {"NCCL_MIN_NCHANNELS": "16", "NCCL_NTHREADS": "256"}


@pytest.mark.parametrize("name", CHANNEL_VARIABLES)
def test_channels_chosen_by_the_user_are_kept(name: str) -> None:
    assert is_network_chosen({name: "2"})
    assert not is_network_chosen({name: ""})


def test_ib_disables_plugins() -> None:
    (ib,) = (row for row in NETWORKS if row.name == "ib")
    assert ib.variables["NCCL_NET_PLUGIN"] == "none"
