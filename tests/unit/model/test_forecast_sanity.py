"""What every prediction must hold, whatever the system: ranges, bounds, and no contradiction between
two of them.
"""

import pytest

from busbw.core.collectives import BY_NAME
from busbw.core.errors import UsageError
from busbw.model.bounds import bounds
from busbw.model.estimate import EstimateInputs
from busbw.model.forecast import forecast
from busbw.model.nccl.choice import AllowedAlgorithms
from busbw.model.predict import predict
from busbw.model.spine import Spine
from busbw.model.systems import System, parse_system, with_nics
from busbw.model.types import Forecast

MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40
SIZES = (0, 1, 4 << 10, 64 << 10, MIB, 64 * MIB, GIB, TIB)
# NCCL changes its protocol where its model expects a gain, which is not always one.
DIP, SMALL_DIP, SMALL = 0.98, 0.7, 2 * MIB


def system(text: str) -> System:
    described = parse_system(text)
    return described if described.nics else with_nics(described, "2x100G")


def expected(
    described: System, collective: str, shape: tuple[int, int], size: int, dtype: str = "float"
) -> Forecast:
    answer = forecast(EstimateInputs(described, dtype=dtype), BY_NAME[collective], *shape, size)
    assert answer is not None
    return answer


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("h100x8", ((1, 2), (1, 5), (1, 8), (2, 8), (16, 8))),
        ("h200x8", ((2, 8),)),
        ("p5.48xlarge", ((2, 8),)),
        ("a100x16", ((1, 6), (1, 16), (3, 1))),
        ("b200x8", ((1, 7), (2, 4), (2, 8))),
        ("gb200nvl72", ((1, 72), (2, 72))),
        ("l40sx8", ((1, 8), (2, 8))),
        ("a2-ultragpu-8g", ((4, 8),)),
        ("gb10x1", ((5, 1),)),
    ],
)
def test_a_prediction_is_in_its_range_below_its_bound_and_larger_sizes_take_no_less(
    text: str, shapes: tuple[tuple[int, int], ...]
) -> None:
    described = system(text)
    types = {"all_reduce": ("bfloat16", "int8", "f8e4m3")}
    for shape in shapes:
        for name, row in BY_NAME.items():
            if name == "hypercube" and shape[0] * shape[1] & (shape[0] * shape[1] - 1):
                continue
            possible = bounds(row, described.fabric(*shape), described.features())
            most = {bound.algorithm: bound.busbw for bound in possible}
            for dtype in types.get(name, ("float",)):
                before = 0.0
                for size in SIZES:
                    answer = expected(described, name, shape, size, dtype)
                    what = (text, shape, name, dtype, size)
                    assert answer.low <= answer.busbw <= answer.high, what
                    assert answer.busbw <= most[answer.algorithm] * (1 + 1e-9), what
                    least = DIP if size >= SMALL else SMALL_DIP
                    assert answer.time_s >= least * before, what
                    before = answer.time_s


@pytest.mark.parametrize("text", ["h100x8", "b200x8", "a3-megagpu-8g", "gb200nvl72", "gb300nvl72"])
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "alltoall"])
def test_the_time_grows_with_the_number_of_hosts_without_jumps(text: str, collective: str) -> None:
    """A published run moves what is expected of other numbers of hosts as well as its own."""
    described = system(text)
    for size in (MIB, GIB, 16 * GIB):
        before = expected(described, collective, (1, described.gpus), size)
        longest_s = before.time_s
        for hosts in (2, 3, 4, 5, 8, 9, 16, 19, 20, 21, 32, 33, 64):
            answer = expected(described, collective, (hosts, described.gpus), size)
            what = (size, hosts)
            assert answer.time_s >= 0.92 * longest_s, what
            alike = (answer.algorithm, answer.protocol) == (before.algorithm, before.protocol)
            if alike and hosts == before.hosts + 1 > 3 and size >= GIB:
                assert answer.time_s <= (1 + 1 / before.hosts) * 1.1 * before.time_s, what
            longest_s, before = max(longest_s, answer.time_s), answer


def test_the_range_of_two_racks_holds_what_three_clusters_reached() -> None:
    answer = expected(system("gb200nvl72"), "all_reduce", (2, 72), 16 * GIB)
    assert 400e9 < answer.low < 676e9 and 810e9 < answer.high < 1000e9


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "alltoall"])
def test_two_hosts_whose_slots_limit_one_are_not_faster_than_one(collective: str) -> None:
    described = system("l40sx8")
    for size in (MIB, GIB, 16 * GIB):
        alone = expected(described, collective, (1, 8), size)
        both = expected(described, collective, (2, 8), size)
        assert both.time_s >= alone.time_s


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_more_nics_do_not_slow_a_ring_from_a_root(collective: str) -> None:
    times = [
        expected(with_nics(parse_system("h100x8"), nics), collective, (16, 8), 8 << 10).time_s
        for nics in ("1x200G", "2x200G", "8x200G")
    ]
    assert max(times) < 1.1 * min(times)


@pytest.mark.parametrize("gpus", [2, 4])
def test_small_sizes_of_h200_are_those_of_h100_and_not_of_a_virtual_machine(gpus: int) -> None:
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "alltoall"):
        for size in (4 << 10, 64 << 10, 512 << 10):
            h100, h200 = (
                expected(parse_system(text), collective, (1, gpus), size)
                for text in ("h100x8", "h200x8")
            )
            assert h200.time_s == pytest.approx(h100.time_s, rel=0.1), (collective, size)


def test_gpus_between_measured_numbers_are_read_from_the_same_gpus() -> None:
    """Three A100 have no curve: those of 2 and 4 say more than those of 3 H200."""
    three = expected(parse_system("a100x8"), "all_gather", (1, 3), GIB)
    assert all(" a100 " in run for run in three.runs)
    assert three.runs


@pytest.mark.parametrize(
    ("collective", "share"), [("sendrecv", 0.2), ("broadcast", 0.05), ("gather", 0.01)]
)
def test_busbw_stays_beyond_the_largest_measured_number_of_gpus(
    collective: str, share: float
) -> None:
    h200 = parse_system("h200x8")
    four, six = (expected(h200, collective, (1, gpus), GIB) for gpus in (4, 6))
    assert six.busbw == pytest.approx(four.busbw, rel=share)


@pytest.mark.parametrize("text", ["b200x8", "h100x8", "h200x8", "a100x8", "gb200nvl72"])
def test_busbw_does_not_fall_beyond_the_largest_measured_size(text: str) -> None:
    described = system(text)
    for collective in ("all_reduce", "all_gather", "alltoall", "broadcast"):
        at_most = 0.0
        for size in (8 * GIB, 16 * GIB, 32 * GIB, 128 * GIB):
            answer = expected(described, collective, (1, described.gpus), size)
            assert answer.busbw >= 0.98 * at_most, (collective, size)
            at_most = max(at_most, answer.busbw)


def test_alltoall_at_half_of_the_uplinks_loses_no_more_than_these() -> None:
    """Alltoall reaches nearly all of the NICs' rate, and a part of it stays under the leaf."""
    described = parse_system("h100x8")
    full, half, quarter = (
        forecast(EstimateInputs(described, spine=Spine(over)), BY_NAME["alltoall"], 16, 8, 16 * GIB)
        for over in (1.0, 2.0, 4.0)
    )
    assert full is not None and half is not None and quarter is not None
    assert 0.5 * full.busbw < half.busbw < 0.65 * full.busbw
    assert quarter.busbw == pytest.approx(half.busbw / 2, rel=0.02)


def test_an_oversubscribed_spine_never_makes_a_job_faster() -> None:
    described = parse_system("h100x8")
    times = [
        forecast(
            EstimateInputs(described, spine=Spine(oversubscription)),
            BY_NAME["all_reduce"],
            4,
            8,
            16 * GIB,
        )
        for oversubscription in (1.0, 1.1, 2.0, 4.0)
    ]
    took_s = [answer.time_s for answer in times if answer is not None]
    assert took_s == sorted(took_s) and len(took_s) == 4


@pytest.mark.parametrize(
    ("collective", "may", "gpus", "message"),
    [
        ("all_reduce", AllowedAlgorithms(algorithms=("NVLS",)), 8, "--algo and --proto allow"),
        ("hypercube", AllowedAlgorithms(), 6, "not a power of two"),
    ],
)
def test_what_cannot_run_is_refused(
    collective: str, may: AllowedAlgorithms, gpus: int, message: str
) -> None:
    setting = EstimateInputs(parse_system("h100x8"), may=may)
    with pytest.raises(UsageError, match=message):
        predict(setting, BY_NAME[collective], [1, 2], gpus, [GIB], "--system")
