"""What the NICs next to a GPU allow: by hand, on two hosts of four ranks with NICs of 1 GB/s."""

from dataclasses import replace

import pytest

from busbw.api.prediction import predict
from busbw.core.alltoallv import Traffic, traffic
from busbw.model.fabric import Fabric
from busbw.model.own_nics import OwnNics

HOSTS = ["a"] * 4 + ["b"] * 4
ON_SWITCHES = Fabric(2, 4, 100e9, "NVLink", None, over_nvlink=True, nics=4e9, rail=1e9)
ON_PCIE = replace(ON_SWITCHES, over_nvlink=False)


def moved(*flows: tuple[int, int, int]) -> Traffic:
    """The traffic of flows: sender, receiver and bytes."""
    matrix = [[0] * 8 for _ in HOSTS]
    for sender, receiver, size in flows:
        matrix[sender][receiver] = size
    found = traffic(matrix, "", HOSTS)
    assert found is not None
    return found


# Rank 1 sends 3 MB to three ranks of the other host, and 9 MB to its neighbor; rank 6 receives 2 MB
# from two ranks.
SENDER = moved((1, 4, 10**6), (1, 5, 10**6), (1, 6, 10**6), (1, 0, 9 * 10**6), (2, 6, 10**6))


def test_bytes_of_a_rank_to_and_from_other_hosts() -> None:
    assert SENDER.sent_out == (0, 3 * 10**6, 10**6, 0, 0, 0, 0, 0)
    assert SENDER.received_in == (0, 0, 0, 0, 10**6, 10**6, 2 * 10**6, 0)
    assert SENDER.host_bytes == 4 * 10**6
    one_host = traffic([[0, 5], [5, 0]], "", ["a", "a"])
    assert one_host is not None
    assert (one_host.sent_out, one_host.received_in) == ((), ())


@pytest.mark.parametrize(
    ("fabric", "nics", "time_ms"),
    [
        (ON_PCIE, 4, 3.0),  # out of rank 1, over its own NIC
        (ON_SWITCHES, 4, 2.0),  # with PXN it sends over three; rank 6 receives over its own
        (ON_SWITCHES, 2, 1.0),  # ranks 4 and 5, and 6 and 7, share 2 GB/s each
        (ON_PCIE, 1, 1.0),  # all four share 4 GB/s
    ],
)
def test_nccl_sends_over_the_nics_next_to_receivers_where_nvlink_leads_there(
    fabric: Fabric, nics: int, time_ms: float
) -> None:
    least = OwnNics(fabric, nics).least_of_nccl(SENDER)
    assert least is not None
    assert least.time_s * 1e3 == pytest.approx(time_ms)


def test_nothing_between_hosts_takes_no_time() -> None:
    assert OwnNics(ON_SWITCHES, 4).least_of(moved((0, 1, 7))) is None


def test_a_rank_that_receives_the_most_slows_down_alltoallv_between_hosts(tmp_path) -> None:
    """All 16 ranks of 2 x 8 send to rank 0: half of 32 MiB arrives over 1 of 8 NICs of 50 GB/s."""
    size = 32 << 20
    options = {"system": "h200x8", "nics": "8x400G", "min_bytes": size, "max_bytes": size}
    to_first, from_first = tmp_path / "in.csv", tmp_path / "out.csv"
    to_first.write_text(("1" + ",0" * 15 + "\n") * 16)
    from_first.write_text(",".join("1" * 16) + "\n" + (",".join("0" * 16) + "\n") * 15)
    into, out, even = (
        predict("alltoallv", nodes=2, counts=counts, **options)
        for counts in (f"file:{to_first}", f"file:{from_first}", "zipf:0,seed=1")
    )
    assert into.rows[0].time_s > size / 2 / 50e9
    assert "at least 335.5 us for 32 MiB (Z/R = 16.78 MB / 50 GB/s" in into.notes[-1]
    # One sender has all NICs of its host.
    assert out.rows[0].time_s < size / 2 / 50e9 / 2
    for answer in (out, even):
        assert not any("over the NICs next to it" in note for note in answer.notes)
