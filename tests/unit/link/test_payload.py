"""The payload limit by MTU, and the pass mark."""

import pytest

from busbw.host.endpoints import Endpoint
from busbw.link import schedule

GBIT = 1e9 / 8


def port(kind="roce", rate=400 * GBIT, mtu=9000):
    return Endpoint(
        name="eth0", address="10.0.0.1", network="10.0.0.0/24", kind=kind, rate=rate, mtu=mtu
    )


@pytest.mark.parametrize(
    ("kind", "mtu", "percent"),
    [
        ("roce", 1024, 92.6),
        ("roce", 2048, 96.2),
        ("roce", 4096, 98.04),
        ("ib", 4096, 99.4),
        ("ethernet", 1500, 94.15),
        ("ethernet", 9000, 99.0),
    ],
)
def test_share_of_the_line_rate_by_mtu(kind, mtu, percent):
    assert 100 * schedule.share(kind, mtu) == pytest.approx(percent, abs=0.05)


def test_400_gbit_roce_with_mtu_4096_carries_392():
    assert schedule.limit(port(), port(), tcp=False, mtu=4096) / GBIT == pytest.approx(
        392.1, abs=0.1
    )


def test_the_rdma_mtu_follows_the_interface():
    assert [schedule.rdma_mtu(mtu) for mtu in (1500, 4200, 9000, 4155, 4156, 100)] == [
        1024,
        4096,
        4096,
        2048,
        4096,
        None,
    ]
    assert schedule.limit(port(mtu=1500), port(), tcp=False) / GBIT == pytest.approx(
        400 * 0.926, abs=0.1
    )


def test_the_slower_end_sets_the_limit():
    assert schedule.limit(port(rate=100 * GBIT), port(), tcp=True) / GBIT == pytest.approx(
        99.0, abs=0.05
    )


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (port(rate=None), port()),
        (port(mtu=None), port()),
        (port(kind="ib"), port()),
        (port(kind="ib"), port(kind="ib")),
        (port(kind="rdma"), port(kind="rdma")),
    ],
)
def test_unknown_values_give_no_limit(a, b):
    assert schedule.limit(a, b, tcp=False) is None


def test_a_given_line_rate_replaces_an_unknown_one():
    unknown = port(kind="ethernet", rate=None)
    assert schedule.limit(unknown, unknown, tcp=True, line_rate=10 * GBIT) / GBIT == pytest.approx(
        9.9, abs=0.01
    )


def test_the_mark_is_lower_from_gpu_memory():
    assert (schedule.mark(100.0, gpu=False), schedule.mark(100.0, gpu=True)) == (95.0, 90.0)
