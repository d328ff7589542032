"""Traffic of the links of a run, compared with what its operations must send."""

import pytest

from busbw.core.link_samples import ETHERNET, IB, NVLINK, PCIE
from busbw.core.result import RankDevice, Result, ResultRow, World
from busbw.core.sweep import SweepSpec
from busbw.core.telemetry import HostChange, LinkTraffic
from busbw.measure.link_traffic import NETWORK, least_sent, loads

SIZE, OPERATIONS = 1 << 20, 100


def row(*changes: HostChange, operations: int = OPERATIONS) -> ResultRow:
    return ResultRow(
        SIZE, SIZE, "float", "sum", -1, None, None, 1, machine=list(changes), operations=operations
    )


def result(
    *rows: ResultRow,
    collective: str = "all_reduce",
    hosts: tuple[int, ...] = (2, 2),
    groups: int = 1,
) -> Result:
    ranks = [f"h{host}" for host, count in enumerate(hosts) for _ in range(count)]
    devices = [RankDevice(rank, 1, host, 0, "", "CPU") for rank, host in enumerate(ranks)]
    return Result(
        SweepSpec(collective=collective), world=World(devices, len(ranks), groups), rows=list(rows)
    )


def change(*links: LinkTraffic, host: str = "h0", resent: int | None = None) -> HostChange:
    return HostChange(host, 1.0, links=list(links), resent=resent)


@pytest.mark.parametrize(
    ("collective", "hosts", "per_operation"),
    [
        ("all_reduce", (2, 2), SIZE),  # 2 (H - 1) / H
        ("all_reduce", (8, 8, 8, 8), SIZE * 3 // 2),
        ("all_gather", (2, 2), SIZE // 2),
        ("reduce_scatter", (1, 1, 1, 1), SIZE * 3 // 4),
        ("alltoall", (2, 2), SIZE),  # each of two ranks sends half of its data away
    ],
)
def test_bytes_that_must_leave_a_host(collective, hosts, per_operation):
    assert (
        least_sent(result(collective=collective, hosts=hosts), row()) == OPERATIONS * per_operation
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"hosts": (4,)},
        {"hosts": (2, 1)},
        {"groups": 2},
        {"collective": "broadcast"},
        {"collective": "sendrecv"},
    ],
    ids=str,
)
def test_it_is_unknown_where_hosts_differ_or_data_may_stay(fields):
    assert least_sent(result(**fields), row()) is None


def test_nvlink_of_several_hosts_has_no_least():
    assert least_sent(result(), row(), NVLINK) is None


def test_it_is_unknown_without_a_count_of_operations():
    assert least_sent(result(), row(operations=0)) is None


def test_ports_are_summed_and_the_troubled_ones_named():
    first = LinkTraffic("mlx5_0", IB, sent=10, received=4, lost=0, pause_in_s=0.0)
    second = LinkTraffic("mlx5_1", IB, sent=12, received=5, lost=3, pause_in_s=0.25)
    (load,) = loads(result(row(change(first, second, resent=7))))
    assert (load.kind, load.links, load.all.sent, load.all.received, load.all.lost) == (
        NETWORK,
        2,
        22,
        9,
        3,
    )
    assert (load.all.pause_in_s, load.troubled, load.resent) == (0.25, ("mlx5_1",), 7)


def test_values_that_no_port_counts_are_unknown():
    (load,) = loads(result(row(change(LinkTraffic("eth0", ETHERNET, sent=10)))))
    assert (load.all.received, load.all.lost, load.all.cnp_in, load.resent) == (None,) * 4


def test_ports_that_carried_none_of_the_data_are_left_out():
    busy, idle = (
        LinkTraffic("eth0", ETHERNET, sent=1000),
        LinkTraffic("eth1", ETHERNET, sent=9, lost=5),
    )
    (load,) = loads(result(row(change(busy, idle))))
    assert load.all.name == "eth0" and load.all.lost is None


def test_use_is_that_of_the_whole_run():
    quiet = row(
        change(LinkTraffic("eth0", ETHERNET, sent=1), LinkTraffic("eth1", ETHERNET, sent=5))
    )
    loud = row(
        change(LinkTraffic("eth0", ETHERNET, sent=10_000), LinkTraffic("eth1", ETHERNET, sent=5))
    )
    assert [load.all.sent for load in loads(result(quiet, loud))] == [1, 10_000]


def test_one_host_uses_nvlink_and_no_network():
    links = (
        LinkTraffic("eth0", ETHERNET, sent=10),
        LinkTraffic("GPU0 NVLink", NVLINK, sent=99, received=98),
    )
    (load,) = loads(result(row(change(*links)), hosts=(4,)))
    assert (load.kind, load.all.sent, load.resent) == (NVLINK, 99, None)
    assert load.least == OPERATIONS * 6 * SIZE, "four GPUs, 2 (n - 1) / n each"


def test_a_slot_of_pcie_is_shown_where_it_resent_packets():
    slots = loads(
        result(
            row(
                change(
                    LinkTraffic("GPU0 PCIe", PCIE, lost=0), LinkTraffic("GPU1 PCIe", PCIE, lost=2)
                )
            )
        )
    )
    assert [(load.kind, load.all.name, load.all.lost) for load in slots] == [(PCIE, "GPU1 PCIe", 2)]


def test_a_run_that_was_not_watched_has_none():
    assert loads(result(row(HostChange("h0", 1.0, sent={"eth0": 5})))) == []
