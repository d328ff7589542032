"""NICs by name: the variables that select them, and their rates."""

import json

import pytest

from busbw.core.errors import NoMeasurement, UsageError
from busbw.host import rails
from busbw.host.endpoints import Endpoint
from busbw.host.rails import NicChoice, of_this_host, select
from busbw.host.snapshot import parse_archive
from busbw.host.source import Source

GBIT = 1e9 / 8


PORTS = [
    Endpoint(name=f"eth{number}", address=address, network=network, rate=25 * GBIT)
    for number, (address, network) in enumerate(
        [
            ("192.0.2.1", "192.0.2.0/24"),
            ("192.0.2.2", "192.0.2.0/24"),
            ("198.51.100.1", "198.51.100.0/24"),
        ]
    )
]


@pytest.fixture(autouse=True)
def three_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them in one network."""
    monkeypatch.setattr(rails, "endpoints", lambda _source: PORTS)


def no_rdma() -> Source:
    return parse_archive(json.dumps({"schema": "busbw.host/1"}))


def rdma_machine() -> Source:
    """mlx5_0 at 400 Gbit/s, and both ports of mlx5_1 at 100."""
    entries: list[dict[str, str]] = [{"schema": "busbw.host/1"}]
    for device, port, rate in (("mlx5_0", 1, 400), ("mlx5_1", 1, 100), ("mlx5_1", 2, 100)):
        base = f"/sys/class/infiniband/{device}/ports/{port}"
        files = {
            "link_layer": "InfiniBand",
            "rate": f"{rate} Gb/sec (4X NDR)",
            "state": "4: ACTIVE",
        }
        entries += [{"path": f"{base}/{name}", "text": f"{text}\n"} for name, text in files.items()]
    entries += [
        {"path": f"/sys/class/infiniband/{device}/device", "link": "../../../0000:c5:00.0"}
        for device in ("mlx5_0", "mlx5_1")
    ]
    return parse_archive("\n".join(map(json.dumps, entries)))


def test_rdma_devices_are_selected_for_nccl_and_ucx_with_their_rates() -> None:
    selected = select([NicChoice("mlx5_0"), NicChoice("mlx5_1:2", 50 * GBIT)], rdma_machine())
    assert selected.rdma
    assert selected.variables == {
        "NCCL_IB_HCA": "=mlx5_0,mlx5_1:2",
        "UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:2",
    }
    assert selected.rails == [NicChoice("mlx5_0", 400 * GBIT), NicChoice("mlx5_1:2", 50 * GBIT)]


def test_all_are_the_rdma_devices_where_there_are_any() -> None:
    assert of_this_host(rdma_machine()) == ["mlx5_0", "mlx5_1:1", "mlx5_1:2"]


def test_a_missing_nic_and_a_mixture_are_refused() -> None:
    with pytest.raises(NoMeasurement, match=r"--rail eth7: .* has no such RDMA device, inte") as no:
        select([NicChoice("eth7")], rdma_machine())
    assert no.value.hint == f"it has mlx5_0, mlx5_1:1, mlx5_1:2, {', '.join(map(shown, PORTS))}"
    both = "--rail mlx5_0 is an RDMA device, and --rail eth1 is none"
    with pytest.raises(NoMeasurement, match=both):
        select([NicChoice("eth1"), NicChoice("mlx5_0")], rdma_machine())


def shown(port: Endpoint) -> str:
    return f"{port.name} ({port.network})"


def test_interfaces_are_selected_by_their_names_or_networks() -> None:
    selected = select([NicChoice("eth0"), NicChoice("198.51.100.0/24", GBIT)], no_rdma())
    assert not selected.rdma
    assert selected.variables == {
        "NCCL_IB_DISABLE": "1",
        "NCCL_SOCKET_IFNAME": "=eth0,eth2",
        "GLOO_SOCKET_IFNAME": "eth0,eth2",
        "UCX_NET_DEVICES": "eth0,eth2",
    }
    assert selected.rails == [NicChoice("eth0", 25 * GBIT), NicChoice("198.51.100.0/24", GBIT)]


def test_one_interface_by_two_names_is_refused() -> None:
    same = "--rail eth0 and --rail 192.0.2.0/24 are the same interface"
    with pytest.raises(UsageError, match=same):
        select([NicChoice("eth0"), NicChoice("192.0.2.0/24")], no_rdma())


def test_interfaces_that_share_a_network_are_called_by_their_names() -> None:
    assert of_this_host(no_rdma()) == ["eth0", "eth1", "198.51.100.0/24"]
