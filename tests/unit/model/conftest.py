from collections.abc import Callable

import pytest

from busbw.core.topology import Gpu, Host, Nic, Topology

GB = 1e9


def build(
    hosts: int = 1,
    *,
    gpus: int = 8,
    name: str = "NVIDIA H100 80GB HBM3",
    links: int | None = 18,
    link_gb: float | None = 25,
    sm: int = 90,
    nics: int = 8,
    nic_gb: float | None = 50,
    kind: str = "ib",
    pcie_gb: float | None = 63,
    pcie_gen: int = 5,
) -> Topology:
    """Hosts h0, h1 ... with equal GPUs (bus ids 0000:0i:00.0) and equal ports mlx5_i."""
    link = None if link_gb is None else link_gb * GB
    pcie = None if pcie_gb is None else pcie_gb * GB
    rate = None if nic_gb is None else nic_gb * GB
    host_gpus = [
        Gpu(
            i,
            name,
            f"0000:{i:02x}:00.0",
            0,
            links,
            link,
            pcie,
            80 << 30,
            sm,
            False if sm < 90 or not links else None,
            pcie_gen_max=pcie_gen,
            pcie_width=16,
        )
        for i in range(gpus)
    ]
    ports = [Nic(f"mlx5_{i}", kind, rate, f"ib{i}") for i in range(nics)]
    return Topology([Host(f"h{i}", gpus=host_gpus, nics=ports) for i in range(hosts)])


@pytest.fixture(scope="session")
def system() -> Callable[..., Topology]:
    return build
