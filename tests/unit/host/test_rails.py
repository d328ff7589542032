"""NICs by name: the variables that select them, and their rates."""

import json

import pytest

from busbw.core.errors import NoMeasurement
from busbw.host.rails import NicChoice, of_this_host, select
from busbw.host.snapshot import parse_archive
from busbw.host.source import Source

GBIT = 1e9 / 8


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
    with pytest.raises(NoMeasurement, match=r"--rail eth77: .* has no such RDMA device, interface"):
        select([NicChoice("eth77")], rdma_machine())
    with pytest.raises(NoMeasurement, match="mlx5_0 is an RDMA device, and not all others are"):
        select([NicChoice("mlx5_0"), NicChoice("eth77")], rdma_machine())
