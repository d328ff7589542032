"""The table of networks: NCCL is told the name that its log is later searched for."""

import pytest

from busbw.core.networks import NETWORKS, Network


@pytest.mark.parametrize("row", NETWORKS, ids=lambda row: row.name)
def test_nccl_is_told_the_network_by_its_own_name_so_that_it_takes_no_other(row: Network) -> None:
    assert row.variables["NCCL_NET"] == row.nccl
    assert row.nccl.lower() == row.name


def test_nccls_own_sockets_are_chosen_against_whatever_plugin_an_image_has() -> None:
    (socket,) = (row for row in NETWORKS if row.name == "socket")
    assert socket.variables == {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none", "NCCL_IB_DISABLE": "1"}
