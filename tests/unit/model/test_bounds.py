"""The bounds of every algorithm against worked examples, and as properties."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busbw.core.collectives import BY_NAME, COLLECTIVES
from busbw.core.errors import UsageError
from busbw.core.result import Ideal
from busbw.core.topology import Topology
from busbw.model import bounds as model
from busbw.model.bounds import Features
from busbw.model.fabric import Fabric, NoFabric, fabric

System = Callable[..., Topology]
A100 = {"name": "NVIDIA A100-SXM4-80GB", "links": 12, "sm": 80, "nic_gb": 25}
H100: dict[str, object] = {}
H800 = {"name": "NVIDIA H800", "links": 8}
B200 = {"name": "NVIDIA B200", "link_gb": 50, "sm": 100}
B200_800 = {**B200, "nic_gb": 100}

# all_reduce busbw in GB/s, rounded, by number of hosts; "p2p" is alltoall's own.
WORKED = [
    (
        A100,
        {
            1: {"endpoint": 300, "Ring": 300, "Tree": 262, "p2p": 300},
            2: {"endpoint": 321, "Ring": 200, "Tree": 281, "CollNetDirect": 321, "p2p": 47},
            4: {"endpoint": 258, "Ring": 200, "Tree": 194, "CollNetDirect": 332, "p2p": 32},
            16: {"endpoint": 212, "Ring": 200, "Tree": 198, "CollNetDirect": 340, "p2p": 26},
            128: {"endpoint": 201, "Ring": 200, "Tree": 200, "CollNetDirect": 343, "p2p": 25},
        },
    ),
    (
        H100,
        {
            1: {"endpoint": 450, "Ring": 450, "Tree": 394, "NVLS": 700, "p2p": 450},
            2: {
                "endpoint": 482,
                "Ring": 400,
                "Tree": 422,
                "NVLSTree": 750,
                "NVLS": 750,
                "CollNetDirect": 482,
                "p2p": 94,
            },
            3: {
                "endpoint": 493,
                "Ring": 400,
                "Tree": 431,
                "NVLSTree": 511,
                "NVLS": 767,
                "CollNetDirect": 493,
                "p2p": 72,
            },
            4: {
                "endpoint": 498,
                "Ring": 400,
                "Tree": 388,
                "NVLSTree": 388,
                "NVLS": 775,
                "CollNetDirect": 498,
                "p2p": 65,
            },
            16: {
                "endpoint": 423,
                "Ring": 400,
                "Tree": 397,
                "NVLSTree": 397,
                "NVLS": 794,
                "CollNetDirect": 510,
                "p2p": 53,
            },
            128: {
                "endpoint": 403,
                "Ring": 400,
                "Tree": 400,
                "NVLSTree": 400,
                "NVLS": 799,
                "CollNetDirect": 514,
                "p2p": 50,
            },
        },
    ),
    (
        H800,
        {
            1: {"endpoint": 200, "Ring": 200, "Tree": 175, "NVLS": 311, "p2p": 200},
            2: {
                "endpoint": 214,
                "Ring": 200,
                "Tree": 188,
                "NVLSTree": 333,
                "NVLS": 333,
                "CollNetDirect": 214,
                "p2p": 94,
            },
            4: {
                "endpoint": 221,
                "Ring": 200,
                "Tree": 194,
                "NVLSTree": 344,
                "NVLS": 344,
                "CollNetDirect": 221,
                "p2p": 65,
            },
            16: {
                "endpoint": 227,
                "Ring": 200,
                "Tree": 198,
                "NVLSTree": 353,
                "NVLS": 353,
                "CollNetDirect": 227,
                "p2p": 53,
            },
        },
    ),
    (
        B200,
        {
            1: {"endpoint": 900, "Ring": 900, "Tree": 788, "NVLS": 1400, "p2p": 900},
            2: {
                "endpoint": 750,
                "Ring": 400,
                "Tree": 750,
                "NVLSTree": 750,
                "NVLS": 750,
                "CollNetDirect": 750,
                "p2p": 94,
            },
            3: {
                "endpoint": 575,
                "Ring": 400,
                "Tree": 511,
                "NVLSTree": 511,
                "NVLS": 767,
                "CollNetDirect": 767,
                "p2p": 72,
            },
            4: {
                "endpoint": 517,
                "Ring": 400,
                "Tree": 388,
                "NVLSTree": 388,
                "NVLS": 775,
                "CollNetDirect": 775,
                "p2p": 65,
            },
            16: {
                "endpoint": 423,
                "Ring": 400,
                "Tree": 397,
                "NVLSTree": 397,
                "NVLS": 794,
                "CollNetDirect": 794,
                "p2p": 53,
            },
        },
    ),
    (
        B200_800,
        {
            1: {"endpoint": 900, "Ring": 900, "Tree": 788, "NVLS": 1400, "p2p": 900},
            2: {
                "endpoint": 964,
                "Ring": 800,
                "Tree": 844,
                "NVLSTree": 1500,
                "NVLS": 1500,
                "CollNetDirect": 964,
                "p2p": 188,
            },
            4: {
                "endpoint": 996,
                "Ring": 800,
                "Tree": 775,
                "NVLSTree": 775,
                "NVLS": 1550,
                "CollNetDirect": 996,
                "p2p": 129,
            },
            16: {
                "endpoint": 847,
                "Ring": 800,
                "Tree": 794,
                "NVLSTree": 794,
                "NVLS": 1588,
                "CollNetDirect": 1021,
                "p2p": 106,
            },
        },
    ),
]


@pytest.mark.parametrize(
    ("kind", "by_hosts"), WORKED, ids=["A100", "H100", "H800", "B200", "B200 8x800G"]
)
def test_worked_examples(
    system: System, kind: dict[str, object], by_hosts: dict[int, dict[str, int]]
) -> None:
    for hosts, expected in by_hosts.items():
        topology, ranks = system(hosts, **kind), [8] * hosts
        by_algorithm = {
            b.algorithm: b.busbw
            for b in bounds(
                "all_reduce", topology, ranks, nvls=topology.hosts[0].gpus[0].sm >= 90, collnet=True
            )
        }
        endpoint_bound = endpoint("all_reduce", topology, ranks)
        (exchange,) = bounds("alltoall", topology, ranks, nvls=True)
        assert endpoint_bound is not None
        by_algorithm |= {"endpoint": endpoint_bound.busbw, "p2p": exchange.busbw}
        by_algorithm.pop("CollNetChain", None)
        assert set(by_algorithm) == set(expected), hosts
        for algorithm, gb in expected.items():
            assert abs(by_algorithm[algorithm] / 1e9 - gb) <= 0.5001, (
                hosts,
                algorithm,
                by_algorithm[algorithm] / 1e9,
            )


def bounds(name: str, topology: Topology, ranks: list[int], **features: bool) -> list[Ideal]:
    links = fabric(topology.hosts, ranks)
    return (
        []
        if isinstance(links, NoFabric)
        else model.bounds(BY_NAME[name], links, Features(**features))
    )


def ideal(name: str, topology: Topology, ranks: list[int], **features: bool) -> Ideal | None:
    return max(
        bounds(name, topology, ranks, **features), key=lambda bound: bound.busbw, default=None
    )


def endpoint(name: str, topology: Topology, ranks: list[int]) -> Ideal | None:
    links = fabric(topology.hosts, ranks)
    return None if isinstance(links, NoFabric) else model.endpoint(BY_NAME[name], links)


def names(ideals: list[Ideal]) -> list[str]:
    return [bound.algorithm for bound in ideals]


def bound_of(
    name: str, topology: Topology, ranks: list[int], algorithm: str, **features: bool
) -> Ideal:
    (bounds_of_algorithm,) = [
        bound
        for bound in bounds(name, topology, ranks, **{"nvls": True} | features)
        if bound.algorithm == algorithm
    ]
    return bounds_of_algorithm


def test_which_algorithms_can_run(system: System) -> None:
    one_host, two_hosts, flat = system(1), system(2), system(4, gpus=1, nics=1)
    assert names(bounds("all_reduce", one_host, [8], nvls=False)) == ["Ring", "Tree"]
    assert names(bounds("all_reduce", one_host, [8], nvls=True)) == ["Ring", "Tree", "NVLS"]
    assert names(bounds("all_reduce", two_hosts, [8, 8], nvls=True)) == ["Ring", "Tree", "NVLSTree"]
    assert names(bounds("all_reduce", two_hosts, [8, 8], nvls=False, collnet=True)) == [
        "Ring",
        "Tree",
        "CollNetChain",
        "CollNetDirect",
    ]
    assert names(bounds("all_gather", one_host, [8], nvls=True)) == ["Ring", "NVLS"]
    assert names(bounds("all_gather", two_hosts, [8, 8], nvls=True)) == ["Ring"]
    assert names(bounds("reduce_scatter", flat, [1] * 4, nvls=True)) == ["Ring", "PAT"]
    assert names(bounds("all_reduce", flat, [1] * 4, nvls=True)) == ["Ring", "Tree"]
    assert names(bounds("all_reduce", system(1, links=0), [8], nvls=True)) == ["Ring", "Tree"]


def test_each_bound_names_its_limiting_link_and_formula(system: System) -> None:
    ring = bound_of("all_reduce", system(1), [8], "Ring")
    assert (ring.busbw, ring.link) == (450e9, "NVLink, 18 links x 25 GB/s")
    assert (
        ring.why
        == "B = 450 GB/s: every GPU forwards busbw to the next of its ring; between hosts, over the"
        " NICs"
    )
    tree = bound_of("all_reduce", system(2), [8, 8], "Tree")
    assert tree.link == "NVLink, 18 links x 25 GB/s"
    assert tree.why.startswith(
        "2(n-1)/n x min(B/2, I t) = 1.875 x min(450 x 0.5, 400) = 421.9 GB/s: "
    )
    tree = bound_of("all_reduce", system(4), [8] * 4, "Tree")
    assert tree.link == "NICs of each host, 8 x 50 GB/s"
    assert tree.why.startswith(
        "2(n-1)/n x min(B/2, I t) = 1.938 x min(450 x 0.5, 400 x 0.5) = 387.5 GB/s: "
    )


def test_two_gpus_in_a_tree_each_send_the_data_once(system: System) -> None:
    # Two H200 with NCCL_ALGO=Tree NCCL_PROTO=Simple measured 353.6 GB/s, above B/2 = 225.
    assert bound_of("all_reduce", system(1, gpus=2), [2], "Tree").busbw == 450e9


def test_one_gpu_a_host_is_bound_by_the_network_alone(system: System) -> None:
    flat = system(4, gpus=1, nics=1)
    assert bound_of("all_reduce", flat, [1] * 4, "Ring").busbw == 50e9
    assert bound_of("all_gather", flat, [1] * 4, "PAT").busbw == 50e9
    assert bound_of("all_reduce", flat, [1] * 4, "Tree").busbw == pytest.approx(1.5 * 25e9)
    endpoint_bound = endpoint("all_reduce", flat, [1] * 4)
    assert (
        endpoint_bound is not None
        and endpoint_bound.busbw == 50e9
        and endpoint_bound.link == "NICs of each host, 1 x 50 GB/s"
    )


def test_gpus_without_nvlink_are_bound_by_pcie(system: System) -> None:
    bound = ideal("all_reduce", system(1, links=0, link_gb=None), [8], nvls=True)
    assert bound is not None and (bound.busbw, bound.link) == (63e9, "PCIe Gen5 x16, 63 GB/s")


def test_sendrecv_leaves_by_the_ports_nearest_a_gpu(system: System) -> None:
    assert bound_of("sendrecv", system(1), [8], "point-to-point").busbw == 450e9
    assert bound_of("sendrecv", system(2), [8, 8], "point-to-point").busbw == 50e9
    assert (
        bound_of("sendrecv", system(2, nics=16, nic_gb=25), [8, 8], "point-to-point").busbw == 50e9
    )
    assert bound_of("sendrecv", system(2, nics=4), [8, 8], "point-to-point").busbw == 50e9


def test_gather_and_scatter_pass_the_roots_host_and_gpu(system: System) -> None:
    for collective in ("gather", "scatter"):
        assert bound_of(collective, system(1), [8], "point-to-point").busbw == 450e9
        bound = bound_of(collective, system(2), [8, 8], "point-to-point")
        assert (bound.busbw, bound.link) == (513e9, "NVLink, 18 links x 25 GB/s, and PCIe, 63 GB/s")
        network = bound_of(collective, system(2, nics=1), [8, 8], "point-to-point")
        assert (
            network.busbw == pytest.approx(50e9 * 15 / 8)
            and network.link == "NICs of each host, 1 x 50 GB/s"
        )
        assert bound_of(collective, system(2, links=0), [8, 8], "point-to-point").busbw == 63e9


def test_hypercube_adds_its_rounds_and_needs_a_power_of_two(system: System) -> None:
    assert bound_of("hypercube", system(1), [8], "point-to-point").busbw == 450e9
    assert bound_of("hypercube", system(2), [8, 8], "point-to-point").busbw == pytest.approx(
        15 / (7 / 450e9 + 64 / 400e9)
    )
    assert (
        bound_of("hypercube", system(2), [8, 8], "point-to-point").link
        == "NICs of each host, 8 x 50 GB/s"
    )
    # 7 rounds of GPUs over 2 links take longer than 64 shares over the NICs.
    assert (
        bound_of("hypercube", system(2, links=1), [8, 8], "point-to-point").link
        == "NVLink, 1 link x 25 GB/s"
    )
    assert bounds("hypercube", system(3), [8] * 3, nvls=True) == []
    assert isinstance(fabric(system(3).hosts, [8] * 3), Fabric)


def test_the_endpoint_bound_of_broadcast_is_the_smaller_link(system: System) -> None:
    for collective in ("broadcast", "reduce"):
        endpoint_bound = endpoint(collective, system(2), [8, 8])
        assert endpoint_bound is not None and (endpoint_bound.busbw, endpoint_bound.algorithm) == (
            400e9,
            "endpoint-optimal",
        )
    one_host = endpoint("all_gather", system(1), [8])
    assert one_host is not None and one_host.busbw == 450e9


def test_all_gather_on_eight_h100_has_450_as_its_ideal(system: System) -> None:
    best = ideal("all_gather", system(1), [8], nvls=True)
    assert best is not None and (best.busbw, best.algorithm) == (450e9, "Ring")


def replaced(topology: Topology, host: int, **fields: object) -> Topology:
    hosts = list(topology.hosts)
    hosts[host] = msgspec.structs.replace(hosts[host], **fields)
    return Topology(hosts)


def test_no_figure_is_guessed(system: System) -> None:
    two_hosts = system(2)
    nics = two_hosts.hosts[0].nics
    slow = [*nics[:7], msgspec.structs.replace(nics[7], rate=25e9)]
    down = [*nics[:7], msgspec.structs.replace(nics[7], up=False)]
    veth = [
        msgspec.structs.replace(nics[0], name="veth0", kind="ethernet", rate=None, virtual=True)
    ]
    gpu = two_hosts.hosts[0].gpus[0]
    cases = {
        "with one rank no data crosses a link": (system(1), [1]),
        "the number of ranks per host varies: 8, 4": (two_hosts, [8, 4]),
        "host h0 runs 9 ranks on 8 GPUs": (system(1), [9]),
        "host h0 runs 2 ranks on 1 GPU": (system(1, gpus=1), [2]),
        "no GPU of host h0 could be read: it has none": (system(1, gpus=0), [8]),
        "no GPU of host h1 could be read: no driver": (
            replaced(two_hosts, 1, gpus=[], gpu_reason="no driver"),
            [8, 8],
        ),
        "the rate of mlx5_0 on host h0 is unknown: its rate could not be read": (
            system(2, nic_gb=None),
            [8, 8],
        ),
        "the NICs of the hosts differ: host h0 8 x 50 GB/s; host h1 7 x 50 GB/s + 1 x 25 GB/s": (
            replaced(two_hosts, 1, nics=slow),
            [8, 8],
        ),
        "the NICs of the hosts differ: host h0 8 x 50 GB/s; host h1 7 x 50 GB/s": (
            replaced(two_hosts, 1, nics=down),
            [8, 8],
        ),
        "all network ports of host h1 are down: mlx5_7": (
            replaced(two_hosts, 1, nics=down[7:]),
            [8, 8],
        ),
        "host h1 has only virtual network interfaces: veth0": (
            replaced(two_hosts, 1, nics=veth),
            [8, 8],
        ),
        "host h1 has no network port": (replaced(two_hosts, 1, nics=[]), [8, 8]),
        "the NVLink rate of NVIDIA H100 80GB HBM3 could not be read: unknown links x unknown GB/s": (
            system(1, links=None, link_gb=None),
            [8],
        ),
        "the GPUs' NVLinks differ: 17 links x 25 GB/s, 18 links x 25 GB/s": (
            replaced(
                two_hosts,
                1,
                gpus=[*two_hosts.hosts[1].gpus[:7], msgspec.structs.replace(gpu, nvlink=17)],
            ),
            [8, 8],
        ),
        "the GPUs have no NVLink, and their PCIe links differ or could not be read": (
            system(1, links=0, pcie_gb=None),
            [8],
        ),
        "NVLink may connect GPUs of several hosts here, which busbw cannot detect": (
            system(2, name="NVIDIA GB200"),
            [8, 8],
        ),
    }
    for reason, (topology, ranks) in cases.items():
        assert fabric(topology.hosts, ranks) == NoFabric(reason)


def test_a_management_port_does_not_count_beside_rdma_ports(system: System) -> None:
    two_hosts = system(2)
    eth = msgspec.structs.replace(
        two_hosts.hosts[0].nics[0], name="eno1", kind="ethernet", rate=3.125e9, netdev="eno1"
    )
    topology = Topology(
        [msgspec.structs.replace(host, nics=[*host.nics, eth]) for host in two_hosts.hosts]
    )
    assert bound_of("all_reduce", topology, [8, 8], "Ring").busbw == 400e9
    bare = Topology([msgspec.structs.replace(host, nics=[eth]) for host in two_hosts.hosts])
    assert bound_of("all_reduce", bare, [8, 8], "Ring").busbw == 3.125e9


def test_a_given_ideal() -> None:
    with pytest.raises(UsageError, match="a rate needs its unit"):
        model.parse_ideal("450")
    assert model.parse_ideal("450GB/s") == Ideal(450e9, "given", "", "--ideal 450GB/s")


SHAPES = st.fixed_dictionaries(
    {
        "hosts": st.integers(1, 20),
        "gpus": st.sampled_from([1, 2, 3, 4, 8]),
        "links": st.sampled_from([0, 4, 12, 18]),
        "nics": st.integers(1, 8),
        "nic_gb": st.sampled_from([3.125, 12.5, 25, 50, 100]),
    }
)


@settings(max_examples=60, deadline=None)
@given(
    shape=SHAPES,
    name=st.sampled_from([row.name for row in COLLECTIVES]),
    nvls=st.booleans(),
    collnet=st.booleans(),
)
def test_bounds_grow_with_nics_and_stay_below_the_ideal(
    system: System, shape: dict[str, int], name: str, nvls: bool, collnet: bool
) -> None:
    topology, faster = system(**shape), system(**{**shape, "nic_gb": shape["nic_gb"] * 2})
    ranks = [shape["gpus"]] * shape["hosts"]
    possible = bounds(name, topology, ranks, nvls=nvls, collnet=collnet)
    wider = bounds(name, faster, ranks, nvls=nvls, collnet=collnet)
    best = ideal(name, topology, ranks, nvls=nvls, collnet=collnet)
    assert names(possible) == names(wider)
    assert bool(possible) == (
        sum(ranks) > 1 and (name != "hypercube" or sum(ranks) & (sum(ranks) - 1) == 0)
    )
    for bound, wider_bound in zip(possible, wider, strict=True):
        assert 0 < bound.busbw <= wider_bound.busbw
        assert best is not None and bound.busbw <= best.busbw and bound.link and bound.why


@settings(max_examples=60, deadline=None)
@given(
    shape=SHAPES,
    name=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"]),
)
def test_no_ring_beats_the_endpoint_bound(system: System, shape: dict[str, int], name: str) -> None:
    topology, ranks = system(**shape), [shape["gpus"]] * shape["hosts"]
    endpoint_bound = endpoint(name, topology, ranks)
    rings = [
        bound
        for bound in bounds(name, topology, ranks, nvls=True)
        if bound.algorithm in ("Ring", "PAT")
    ]
    assert (endpoint_bound is None) == (rings == [])
    for ring in rings:
        assert endpoint_bound is not None and ring.busbw <= endpoint_bound.busbw * (1 + 1e-12)
