"""Collectives of sends and receives: channels between hosts, and the latency of messages."""

from dataclasses import replace

import pytest

from busbw.core.collectives import BY_NAME
from busbw.model.estimate import EstimateInputs, channels_of_send, estimate
from busbw.model.forecast import forecast
from busbw.model.nccl.constants import release
from busbw.model.predict import predict
from busbw.model.systems import parse_system, with_nics

MIB = 1 << 20


# busbw in GB/s of sendrecv on hosts of 8 B200 with 8 x 400 Gbit/s at 64 MiB, NCCL 2.29.7: the mean
# of two published runs, which took the fall for congestion. It is NCCL's channels of a send.
@pytest.mark.parametrize(
    ("hosts", "channels", "measured"),
    [(2, 4, 42.5), (4, 4, 44.2), (8, 2, 26.1), (16, 1, 14.5), (32, 1, 14.5)],
)
def test_a_send_between_hosts_has_fewer_channels_the_more_ranks_there_are(
    hosts: int, channels: int, measured: float
) -> None:
    setting = EstimateInputs(parse_system("b200x8"), release("2.29.7"))
    assert channels_of_send(setting, hosts, 8) == channels
    expected = estimate(setting, "sendrecv", hosts, 8, 64 * MIB)
    assert expected is not None
    assert 64 * MIB / expected.parts.time_s / 1e9 == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize(
    ("system", "nics", "version", "hosts", "channels"),
    [
        ("h100x8", "8x400G", "2.28.9", 2, 2),
        ("h100x8", "8x400G", "2.28.9", 16, 1),
        ("h100x8", "8x400G", "2.30", 256, 4),  # a measured sendrecv has two peers
        ("a100x8", "8x200G", "2.29.7", 2, 2),
        ("b300x8", "8x800G", "2.30", 2, 8),
        ("l40sx8", "8x400G", "2.30", 2, 2),
    ],
)
def test_channels_of_a_send(
    system: str, nics: str, version: str, hosts: int, channels: int
) -> None:
    setting = EstimateInputs(with_nics(parse_system(system), nics), release(version))
    assert channels_of_send(setting, hosts, 8) == channels
    (note,) = [
        note
        for note in predict(setting, BY_NAME["sendrecv"], [hosts], 8, [MIB], "described").notes
        if "sends to another host" in note
    ]
    assert f"over {channels} channel" in note


@pytest.mark.parametrize("collective", ["alltoall", "alltoallv", "gather", "scatter"])
def test_the_latency_of_messages_grows_with_the_ranks(collective: str) -> None:
    setting = EstimateInputs(parse_system("h100x8"))
    times_us = {}
    for hosts in (1, 2, 16, 12500):
        expected = estimate(setting, collective, hosts, 8, 8 * hosts * 8)
        assert expected is not None
        times_us[hosts] = expected.parts.latency_s * 1e6
    assert times_us[1] == pytest.approx(8.4 + 3.4 + 6 * 0.4)
    assert times_us[2] == pytest.approx(8.4 + 14 + 7 * 0.4 + 7)
    assert times_us[12500] == pytest.approx(100_000, rel=0.01)  # 1 us a message and GPU


def test_a_hypercube_has_a_kernel_for_each_round() -> None:
    expected = estimate(EstimateInputs(parse_system("h100x8")), "hypercube", 4, 8, 4096)
    assert expected is not None
    assert expected.parts.latency_s * 1e6 == pytest.approx(3 * 11.8 + 2 * 22.4)


def test_the_root_of_a_gather_receives_over_the_nics_nearest_to_it() -> None:
    # 2 x 8 B200 with 8 x 400 Gbit/s, NCCL 2.29: 92.0 to 95.4, and 90.5 on another cluster.
    setting = EstimateInputs(parse_system("b200x8"), release("2.29.3"))
    expected = forecast(setting, BY_NAME["gather"], 2, 8, 8192 * MIB)
    assert expected is not None
    assert expected.busbw / 1e9 == pytest.approx(93, rel=0.03)
    two_each = replace(setting, system=with_nics(parse_system("a100x8"), "16x100G"))
    one_each = replace(setting, system=with_nics(parse_system("a100x8"), "8x200G"))
    expected_of = [estimate(some, "gather", 2, 8, 8192 * MIB) for some in (two_each, one_each)]
    assert expected_of[0] == expected_of[1]
