"""BBR is reported if a run between hosts used the system's TCP, and only then."""

import pytest

from busbw.core.finding import Verdict
from busbw.core.result import EngineLibrary, RankDevice, Result, World
from busbw.core.sweep import SweepSpec
from busbw.core.topology import Host, Nic, Topology
from busbw.model.network_findings import RULES
from busbw.model.rule import Run, apply

VETH = Nic("v1", "ethernet", netdev="v1")
RDMA = Nic("mlx5_0", "roce", netdev="eth0")


def concluded(
    congestion: list[str], network: str = "", engine: str = "mpi", nic: Nic = VETH, ranks: int = 2
) -> list[str]:
    """Messages on a run over hosts with these congestion controls."""
    devices = [
        RankDevice(number, 1, f"h{number % len(congestion)}", 0, "", "CPU")
        for number in range(ranks)
    ]
    hosts = [
        Host(f"h{number}", nics=[nic], congestion=control)
        for number, control in enumerate(congestion)
    ]
    result = Result(
        SweepSpec(collective="all_reduce"),
        library=EngineLibrary(engine, network=network),
        world=World(devices, ranks),
    )
    conclusions = apply(RULES, Run(result, Topology(hosts)))
    assert all(
        conclusion.verdict is Verdict.WARN and len(conclusion.message) < 230
        for conclusion in conclusions
    )
    return [conclusion.message for conclusion in conclusions]


def test_hosts_with_bbr_are_named() -> None:
    (message,) = concluded(["bbr", "cubic"])
    assert message.startswith("TCP's congestion control is BBR on h0, ")
    (message,) = concluded(["bbr2"] * 5, network="Socket", engine="nccl", nic=RDMA, ranks=5)
    assert "is BBR on h[0-4], " in message


@pytest.mark.parametrize(
    "words",
    [
        {"congestion": ["cubic", "reno"]},
        {"congestion": ["", ""]},  # could not be read
        {"congestion": ["bbr"]},  # nothing goes between hosts
        {"congestion": ["bbr", "bbr"], "network": "busbw", "engine": "nccl"},  # streams of its own
        {"congestion": ["bbr", "bbr"], "network": "IB", "engine": "nccl"},
        {"congestion": ["bbr", "bbr"], "nic": RDMA},  # MPI may have taken either
        {"congestion": ["cubic", "cubic", "bbr"], "ranks": 2},  # a host without a rank
    ],
    ids=str,
)
def test_no_finding_where_the_effect_is_unknown(words: dict) -> None:
    assert concluded(**words) == []
