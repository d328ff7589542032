"""The hardware that a run uses: the GPUs of its ranks, and the ports that NCCL's settings leave."""

from collections.abc import Callable

import msgspec
import pytest

from busbw.core.result import RankDevice, World
from busbw.core.topology import Nic, Topology
from busbw.model.bounds import Features
from busbw.model.fabric import ON_CPUS, Fabric, NoFabric
from busbw.model.hardware import generation, generations
from busbw.model.payload import planned_rate
from busbw.model.usable_hardware import (
    UsedHardware,
    ideals,
    links_of,
    list_matches,
    nics_left,
    used,
)

System = Callable[..., Topology]


def world(*places: tuple[str, int], groups: int = 1) -> World:
    devices = [
        RankDevice(rank, 1, host, gpu, f"0000:{gpu:02X}:00", "GPU")
        for rank, (host, gpu) in enumerate(places)
    ]
    return World(devices, len(devices), groups)


def test_hosts_are_ordered_by_first_rank_with_used_gpus(system: System) -> None:
    use = used(
        world(("h1.cluster", 3), ("h1.cluster", 4), ("h0.cluster", 5), ("h0.cluster", 6)),
        system(2),
        {},
    )
    assert isinstance(use, UsedHardware)
    assert [host.hostname for host in use.hosts] == ["h1", "h0"] and (
        use.fabric.hosts,
        use.fabric.per_host,
    ) == (2, 2)
    assert [[gpu.index for gpu in host.gpus] for host in use.hosts] == [[3, 4], [5, 6]]


def test_links_are_those_of_the_used_gpus_or_a_reason(system: System) -> None:
    places = world(("h0", 0), ("h0", 1), ("h1", 0), ("h1", 1))
    use = used(places, system(2), {})
    assert isinstance(use, UsedHardware)
    assert links_of(places, system(2), {}) == use.fabric
    unread = links_of(world(("h0", 0), ("h9", 0)), system(1), {})
    assert unread == NoFabric("the hardware of host h9 was not read")


def test_links_of_cpus_are_known_in_a_lab_alone(system: System) -> None:
    places = world(("h0", 0), ("h1", 0))
    for device in places.devices:
        device.bus = ""
    assert links_of(places, system(2), {}) == NoFabric(ON_CPUS)
    nic = Nic("v0", "ethernet", 125e6, "v0", virtual=True, in_lab=True)
    hosts = [msgspec.structs.replace(host, nics=[nic]) for host in system(2).hosts]
    links = links_of(places, Topology(hosts), {})
    assert isinstance(links, Fabric)
    assert (links.hosts, links.nics) == (2, 125e6)


def test_two_ranks_on_one_gpu_leave_one_gpu(system: System) -> None:
    assert used(world(("h0", 0), ("h0", 0)), system(1), {}) == NoFabric(
        "host h0 runs 2 ranks on 1 GPU"
    )
    assert ideals("all_reduce", world(("h0", 0), ("h0", 0)), system(1), {}) == (None, None)


def test_groups_share_links_and_are_not_bounded(system: System) -> None:
    use = used(world(("h0", 0), ("h0", 1), groups=2), system(1), {})
    assert use == NoFabric("2 groups of ranks share the links")


@pytest.mark.parametrize(
    ("environment", "nvls", "collnet"),
    [
        ({}, True, False),
        ({"NCCL_NVLS_ENABLE": "0"}, False, False),
        ({"NCCL_COLLNET_ENABLE": "1"}, True, True),
    ],
)
def test_features_follow_the_settings(
    system: System, environment: dict[str, str], nvls: bool, collnet: bool
) -> None:
    use = used(world(("h0", 0), ("h0", 1)), system(1), environment)
    assert isinstance(use, UsedHardware) and use.features == Features(nvls, collnet)


def test_gpus_that_cannot_do_nvls_decide(system: System) -> None:
    use = used(
        world(("h0", 0), ("h0", 1)), system(1, name="NVIDIA A100-SXM4-80GB", links=12, sm=80), {}
    )
    assert isinstance(use, UsedHardware) and not use.features.nvls


PORTS = [
    Nic("mlx5_0", "ib", 50e9, "ib0"),
    Nic("mlx5_1", "ib", 50e9, "ib1"),
    Nic("mlx5_10", "roce", 12.5e9, "eth2"),
    Nic("eth0", "ethernet", 3.125e9, "eth0"),
    Nic("docker0", "ethernet", None, "docker0", virtual=True),
]


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({}, ["mlx5_0", "mlx5_1", "mlx5_10"]),
        ({"NCCL_IB_HCA": "mlx5_1"}, ["mlx5_1", "mlx5_10"]),  # a prefix
        ({"NCCL_IB_HCA": "=mlx5_1"}, ["mlx5_1"]),
        ({"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:2"}, ["mlx5_0"]),
        ({"NCCL_IB_HCA": "^=mlx5_10"}, ["mlx5_0", "mlx5_1"]),
        ({"NCCL_IB_HCA": "^mlx5_1"}, ["mlx5_0"]),
        ({"NCCL_IB_DISABLE": "1"}, ["eth2", "eth0", "docker0"]),
        ({"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "=eth0"}, ["eth0"]),
        ({"NCCL_IB_DISABLE": "0", "NCCL_SOCKET_IFNAME": "eth0"}, ["mlx5_0", "mlx5_1", "mlx5_10"]),
    ],
)
def test_the_ports_that_settings_leave(environment: dict[str, str], names: list[str]) -> None:
    assert [nic.name for nic in nics_left(PORTS, environment)] == names


def test_an_empty_list_takes_every_name() -> None:
    assert (
        list_matches("", "eth0") and list_matches("^", "eth0") and not list_matches("=eth", "eth0")
    )


def test_settings_reach_the_bound(system: System) -> None:
    places = tuple((f"h{h}", g) for h in range(2) for g in range(8))
    best, endpoint_bound = ideals(
        "all_gather", world(*places), system(2), {"NCCL_IB_HCA": "=mlx5_0,mlx5_1"}
    )
    assert best is not None and endpoint_bound is not None
    assert (
        best.busbw == 100e9
        and best.link == "NICs of each host, 2 x 50 GB/s"
        and endpoint_bound.busbw == 187.5e9
    )


@pytest.mark.parametrize(
    ("kind", "planned"),
    [
        ({}, 370.8e9),
        ({"name": "NVIDIA H20"}, 370.8e9),
        ({"name": "NVIDIA GH200 480GB"}, 370.8e9),
        ({"name": "NVIDIA H800", "links": 8}, 164.8e9),
        ({"name": "NVIDIA A100-SXM4-40GB", "links": 12}, 240e9),
        ({"name": "NVIDIA A800-SXM4-80GB", "links": 8}, 160e9),
        ({"name": "Tesla V100-SXM2-16GB", "links": 6}, 120e9),
        ({"name": "Tesla P100-SXM2-16GB", "links": 4, "link_gb": 20}, 72e9),
        ({"name": "NVIDIA B200", "link_gb": 50}, 721.8e9),
        ({"links": 16}, 329.6e9),  # two links down
        ({"links": 0, "link_gb": None}, 48e9),
        ({"links": 0, "link_gb": None, "pcie_gen": 4}, 24e9),
    ],
)
def test_hardware_that_nccl_plans_with(
    system: System, kind: dict[str, object], planned: float
) -> None:
    rate_and_text = planned_rate(system(1, **kind).hosts[0].gpus[0])
    assert rate_and_text is not None and rate_and_text[0] == pytest.approx(planned)


@pytest.mark.parametrize(
    "kind",
    [
        {"name": "NVIDIA R200"},
        {"link_gb": 50},
        {"links": 19},
        {"links": 0, "link_gb": None, "pcie_gen": 2},
    ],
)
def test_hardware_that_fits_no_row_has_no_plan(system: System, kind: dict[str, object]) -> None:
    assert planned_rate(system(1, **kind).hosts[0].gpus[0]) is None


def test_every_table_row_has_a_source_and_finds_itself(system: System) -> None:
    gpu = system(1).hosts[0].gpus[0]
    for row in generations():
        assert row.source and row.planned < row.link_rate
        for name in row.names:
            fitting = msgspec.structs.replace(
                gpu, name=f"NVIDIA {name}-SXM", nvlink=row.links, nvlink_rate=row.link_rate
            )
            assert generation(fitting) is row
