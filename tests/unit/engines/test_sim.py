"""The simulated engine moves real data, injects the requested faults, and takes exactly the time
of its model.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import busbw
from busbw.core.cells import unchecked_sizes
from busbw.core.collectives import COLLECTIVES, Collective, collective
from busbw.core.dtypes import DTYPES, DType, dtype
from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.finding import Verdict
from busbw.core.redops import REDOPS, redop
from busbw.core.result import Cell, ResultRow
from busbw.core.sweep import Series, SweepSpec
from busbw.engines.base import CollectiveCall, Probe, WrongData
from busbw.engines.sim import SimEngine
from busbw.engines.sim_parameters import PARAMETERS, parse_parameters
from busbw.engines.sim_tuner import SimTuner
from busbw.launch.control import SoloControl
from busbw.measure import verification
from busbw.measure.events import Event, RowDone
from busbw.measure.formats import one_line
from busbw.measure.plan import Calls, buffer_bytes
from busbw.measure.runner import Runner

ALL = pytest.mark.parametrize("row", COLLECTIVES, ids=lambda row: row.name)
ROOM = 1 << 14
FEW_TYPES = [dtype(name) for name in ("uint8", "bfloat16", "double")]
ALL_TYPES_RANKS = {False: 3, True: 2}  # by whether a power of two is needed
QUIET = {"noise": 0.0, "alpha_us": 5.0, "gbps": 100.0}


def engine(ranks: int, **parameters: float) -> SimEngine:
    simulation = SimEngine(ranks, parameters)
    simulation.allocate(ROOM, ROOM)
    return simulation


def combinations(
    row: Collective, ranks: int, kinds: Sequence[DType] = DTYPES
) -> Iterator[tuple[Calls, bool]]:
    for kind in kinds:
        for op in [op.name for op in REDOPS] if row.reduces else [""]:
            for root in {0, ranks - 1} if row.rooted else {-1}:
                for in_place in (False, True) if row.in_place_checked else (False,):
                    yield (
                        Calls(SweepSpec(collective=row.name), Series(kind.name, op, root), ranks),
                        in_place,
                    )


def checked(simulation: SimEngine, call: CollectiveCall, seed: int = 3) -> list[WrongData]:
    return verification.run_round(
        simulation, call, simulation.bind(call), Probe(seed, call.dtype, call.op, simulation.size)
    )


def uneven(simulation: SimEngine, call: CollectiveCall) -> bool:
    """alltoallv's calls are made for one rank; the simulation would need one per rank unless all
    totals are equal.
    """
    return (
        len({sum(line) for line in (*call.layout.matrix, *zip(*call.layout.matrix, strict=True))})
        > 1
    )


@ALL
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_data_of_every_type_operator_placement_and_root_is_right(
    row: Collective, ranks: int
) -> None:
    if row.ranks_power_of_two and ranks == 3:
        pytest.skip("hypercube needs a power of two of ranks")
    # Where data goes does not depend on the type, nor the values on the collective:
    # test_host_probe.py has all types, operators and numbers of ranks.
    kinds = DTYPES if ranks == ALL_TYPES_RANKS[row.ranks_power_of_two] else FEW_TYPES
    simulation = engine(ranks)
    for calls, in_place in combinations(row, ranks, kinds):
        for size, shift in (
            (calls.dtype.itemsize, 0),
            (37 * ranks * calls.dtype.itemsize, calls.dtype.itemsize),
        ):
            call = calls.at(size, in_place=in_place, shift_bytes=shift)
            assert not uneven(simulation, call)
            assert [wrong.count for wrong in checked(simulation, call)] == [0] * ranks, (
                calls.dtype.name,
                calls.series,
                in_place,
                size,
            )


@ALL
def test_an_injected_error_is_reported_at_its_rank_and_offset(row: Collective) -> None:
    simulation = engine(2, corrupt_rank=1, corrupt_offset=5)
    for calls, in_place in combinations(row, 2):
        right, wrong = checked(simulation, calls.at(64 * calls.dtype.itemsize, in_place=in_place))
        assert right.count == 0
        assert (wrong.count, wrong.offset) == (1, 5), (calls.dtype.name, calls.series, in_place)
        assert wrong.got == bytes([wrong.expected[0] ^ 1]) + wrong.expected[1:]


def test_a_fault_outside_the_buffer_has_no_effect() -> None:
    for parameters in ({"corrupt_rank": 1.0, "corrupt_offset": 500.0}, {"corrupt_rank": 7.0}):
        simulation = engine(2, **parameters)
        calls = Calls(SweepSpec(collective="all_reduce"), Series("float", "sum", -1), 2)
        assert [wrong.count for wrong in checked(simulation, calls.at(64, in_place=False))] == [
            0,
            0,
        ]


def test_repeated_operations_on_the_same_input_move_no_data() -> None:
    simulation = engine(2)
    call = Calls(SweepSpec(collective="all_reduce"), Series("float", "sum", -1), 2).at(
        64, in_place=False
    )
    launch = simulation.bind(call)
    assert not any(wrong.count for wrong in checked(simulation, call))
    simulation.view(call, "recv", 0)[:] = 0
    launch()
    assert not simulation.view(call, "recv", 0).any()


def rows(name: str, ranks: int, parameters: dict[str, float], **fields: int) -> list[ResultRow]:
    spec = SweepSpec(
        collective=name, **({"min_bytes": 1 << 10, "max_bytes": 1 << 16, "step_factor": 4} | fields)
    )  # type: ignore[arg-type]
    simulation = SimEngine(ranks, parameters)
    simulation.allocate(*[buffer_bytes(spec, spec.max_bytes)] * 2)
    events: list[Event] = []
    Runner(
        engine=simulation,
        world=SoloControl(),
        group=SoloControl(),
        spec=spec,
        max_bytes=spec.max_bytes,
        emit=events.append,
    ).sweep()
    return [event.row for event in events if isinstance(event, RowDone)]


def cells(sampled_rows: list[ResultRow]) -> list[Cell]:
    return [cell for row in sampled_rows for cell in (row.out_of_place, row.in_place) if cell]


@ALL
@pytest.mark.parametrize("ranks", [2, 4])
def test_without_noise_time_is_alpha_and_bytes_over_bandwidth(row: Collective, ranks: int) -> None:
    for measured in rows(row.name, ranks, QUIET):
        wire = measured.size_bytes * float(row.bus_factor(ranks)) / 100e9
        for cell in cells([measured]):
            assert cell.time_s == pytest.approx(5e-6 + wire, rel=1e-9)
            assert cell.wrong in (0, None)


def test_a_very_large_operation_reaches_the_bandwidth_given() -> None:
    calls = Calls(SweepSpec(collective="all_reduce"), Series("float", "sum", -1), 8)
    simulation = SimEngine(8, QUIET)
    simulation.bind(calls.at(1 << 40, in_place=False))()
    assert (1 << 40) * 2 * 7 / 8 / simulation.clock() == pytest.approx(100e9, rel=1e-5)


def test_a_seed_repeats_a_run_and_another_one_does_not() -> None:
    noisy = {"noise": 0.1, "outlier": 0.1}
    first, repeated, other = (
        rows("all_gather", 2, noisy | {"seed": seed}, per_iter_timing=1) for seed in (1.0, 1.0, 2.0)
    )
    assert [cell.samples_s for cell in cells(first)] == [cell.samples_s for cell in cells(repeated)]
    assert [cell.samples_s for cell in cells(first)] != [cell.samples_s for cell in cells(other)]


def test_a_dip_halves_the_speed_of_its_size_only() -> None:
    plain, dipped = rows("broadcast", 2, QUIET), rows("broadcast", 2, QUIET | {"dip_bytes": 4096.0})
    ratios = {
        a.size_bytes: y.time_s / x.time_s
        for a, b in zip(plain, dipped, strict=True)
        for x, y in zip(cells([a]), cells([b]), strict=True)
    }
    assert ratios == pytest.approx({1024: 1.0, 4096: 2.0, 16384: 1.0, 65536: 1.0})


def test_outliers_are_ten_times_slower_at_the_given_rate() -> None:
    samples = [
        sample
        for cell in cells(
            rows(
                "broadcast",
                2,
                QUIET | {"outlier": 0.1},
                per_iter_timing=1,
                iters=200,
                max_bytes=1 << 10,
            )
        )
        for sample in cell.samples_s or []
    ]
    slow = [sample for sample in samples if sample > 2 * min(samples)]
    assert len(samples) == 400
    assert 15 <= len(slow) <= 80
    assert all(sample == pytest.approx(10 * min(samples)) for sample in slow)


def test_noise_has_the_given_width() -> None:
    samples = [
        sample
        for cell in cells(
            rows(
                "broadcast",
                2,
                QUIET | {"noise": 0.05},
                per_iter_timing=1,
                iters=400,
                max_bytes=1 << 10,
            )
        )
        for sample in cell.samples_s or []
    ]
    mean = sum(samples) / len(samples)
    spread = (sum((sample - mean) ** 2 for sample in samples) / len(samples)) ** 0.5
    assert spread / mean == pytest.approx(0.05, rel=0.15)


def test_parameters_are_read_by_name() -> None:
    assert parse_parameters("alpha_us=5,noise=0.1") == {"alpha_us": 5.0, "noise": 0.1}
    assert parse_parameters("") == {}
    versions = engine(2, alpha_us=5).library().versions
    assert set(versions) == set(PARAMETERS)
    assert (versions["alpha_us"], versions["noise"]) == ("5", "0.01")
    assert versions["data_bytes"] == "1048576"  # not 1.04858e+06


@pytest.mark.parametrize("item", ["alpha=5", "noise", "noise=", "noise=much", "=1", "noise=nan"])
def test_an_unknown_or_malformed_parameter_is_refused(item: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_parameters(f"gbps=100,{item}")
    assert caught.value.message == f"--sim: '{item}' is not a parameter and its number"
    assert all(name in caught.value.hint for name in PARAMETERS)


@pytest.mark.parametrize(
    "item",
    [
        "gbps=0",
        "gbps=-1",
        "gbps=inf",
        "seed=inf",
        "alpha_us=-1",
        "noise=-0.1",
        "noise=inf",
        "outlier=2",
        "dip_bytes=-8",
        "corrupt_rank=-2",
    ],
)
def test_a_parameter_out_of_its_range_is_refused_with_the_range(item: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_parameters(item)
    parameter = PARAMETERS[item.split("=")[0]]
    assert caught.value.message == f"--sim: '{item}' is out of range"
    assert parameter.allowed in caught.value.hint


@pytest.mark.parametrize(
    "item", ["late_rank=1.5", "slow_rank=0.5", "corrupt_offset=2.5", "dip_bytes=0.1", "seed=1.1"]
)
def test_parameters_that_are_counts_must_be_whole_numbers(item: str) -> None:
    with pytest.raises(UsageError, match=f"--sim: '{item}' is not a whole number"):
        parse_parameters(item)


@pytest.mark.parametrize("name", PARAMETERS)
def test_defaults_and_range_limits_are_accepted(name: str) -> None:
    for value in (PARAMETERS[name].default, PARAMETERS[name].least, PARAMETERS[name].largest):
        assert parse_parameters(f"{name}={value!r}") == {name: value}


@pytest.mark.parametrize("end", ["least", "largest"])
@pytest.mark.parametrize("name", PARAMETERS)
def test_sweeps_run_at_range_limits(name: str, end: str) -> None:
    measured = cells(
        rows("all_reduce", 2, QUIET | {name: getattr(PARAMETERS[name], end)}, max_bytes=1 << 10)
    )
    assert all(math.isfinite(cell.time_s) and cell.time_s > 0 for cell in measured)


def test_the_simulation_supports_all_types_but_no_cuda_graphs() -> None:
    simulation = engine(3)
    assert [device.rank for device in simulation.devices()] == [0, 1, 2]
    assert all(
        simulation.unsupported(row, kind, op) is None
        for row in COLLECTIVES
        for kind in DTYPES
        for op in REDOPS
    )
    assert simulation.unsupported(collective("reduce"), dtype("f8e4m3"), redop("mulsum")) is None
    with pytest.raises(NoMeasurement, match="-G: the sim engine has no CUDA graphs"):
        simulation.capture([])


@pytest.mark.parametrize("table_name", ["missing", "", "binary"])
def test_a_tuner_table_that_cannot_be_read_is_named(table_name: str, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xd0\xff")
    with pytest.raises(UsageError, match=f"BUSBW_TUNER_TABLE={tmp_path / table_name}: "):
        SimTuner(4, {}, {"BUSBW_TUNER_TABLE": str(tmp_path / table_name)})


def test_only_data_up_to_data_bytes_is_moved_and_verified() -> None:
    faults = {"corrupt_rank": 1.0, "data_bytes": 4096.0}
    measured = rows("all_reduce", 2, QUIET | faults)
    found = {row.size_bytes: [cell.wrong for cell in cells([row])] for row in measured}
    assert found == {1024: [1, 1], 4096: [1, 1], 16384: [None, None], 65536: [None, None]}
    assert all(math.isfinite(cell.time_s) for cell in cells(measured))


def test_the_default_sweep_takes_little_cpu_time_and_says_what_was_not_verified(
    cpu_s: Callable[[], float],
) -> None:
    before = cpu_s()
    result = busbw.run("all_reduce", engine="sim")
    assert cpu_s() - before < 3
    assert result.rows[-1].size_bytes == 8 << 30
    assert unchecked_sizes(result) == [1 << power for power in range(21, 34)]
    (found,) = (finding for finding in result.findings if finding.id == "data")
    assert found.verdict is Verdict.SKIP
    assert found.message == (
        "no wrong element in 36 checks; not checked: 13 sizes, from 2 MiB to 8 GiB"
    )
    assert found.fix.startswith("check them with --sim data_bytes=8589934592")
    line = one_line.render(result)
    assert line.endswith("; data of 13 sizes not checked\n")
