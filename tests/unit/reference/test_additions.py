"""Results that become curves of a user's own table, and results beside the runs of a table."""

import msgspec
import pytest

from busbw.core.errors import UsageError
from busbw.core.result import Result
from busbw.model.reference.compared import ComparedRun, ran_of
from busbw.model.reference.curves import CurveSource, Reference, ReferenceCurve
from busbw.model.systems import parse_system
from busbw.reference.additions import curves_of, refuse_unhealthy, run_name, source_of
from busbw.reference.comparison import columns, compared_with, comparison_text, plot_text
from busbw.report import read

MIB, GIB = 1 << 20, 1 << 30


def result_of(*rows: str) -> Result:
    """A log of all_reduce on 8 H100, whose rows are size, type, and times of both placements."""
    lines = ["# Collective test starting: all_reduce_perf"]
    lines += [f"#  Rank {n} Group 0 Pid 1 on h device {n} [0x08] NVIDIA H100" for n in range(8)]
    lines.append(
        "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong"
    )
    for row in rows:
        size, dtype, *times = row.split()
        cells = []
        for time in times:
            algbw = int(size) / float(time) / 1e3
            cells.append(f"{time} {algbw:.2f} {algbw * 7 / 4:.2f} 0")
        lines.append(f"{size} {int(size) // 4} {dtype} sum -1 {' '.join(cells)}")
    result = read.read("\n".join(lines).encode(), "run.log")
    assert isinstance(result, Result)
    return result


def ran(result: Result) -> ComparedRun:
    return ran_of(result, parse_system("h100x8"), (1, 8))


def added(*rows: str) -> list[ReferenceCurve]:
    result = result_of(*rows)
    return curves_of(result, ran(result), "mine", "run.log")


def test_a_curve_has_the_times_out_of_place_in_the_order_of_sizes() -> None:
    (curve,) = added(f"{GIB} float 4000.0 3900.0", f"{MIB} float 40.0 39.0")
    assert (curve.sizes, curve.times_us) == ((MIB, GIB), (40.0, 4000.0))
    assert (curve.run, curve.dtype, curve.per_host, curve.gpu) == ("mine", "float", 8, "h100")


def test_a_size_that_stands_several_times_counts_once_with_its_median() -> None:
    (curve,) = added(*(f"{GIB} float {time} {time}" for time in ("4000.0", "4100.0", "4600.0")))
    assert curve.times_us == (4100.0,)
    message = "row 1 GiB float: 4.000 ms and 90.00 ms contradict each other"
    with pytest.raises(UsageError, match=message) as error:
        added(f"{GIB} float 4000.0 4000.0", f"{GIB} float 90000.0 90000.0")
    assert "measure again" in error.value.hint


def test_each_type_is_a_curve() -> None:
    curves = added(f"{GIB} float 4000.0 4000.0", f"{GIB} half 4100.0 4100.0")
    assert [(curve.dtype, curve.times_us) for curve in curves] == [
        ("float", (4000.0,)),
        ("half", (4100.0,)),
    ]


def in_place_only(result: Result) -> Result:
    rows = [msgspec.structs.replace(row, out_of_place=None) for row in result.rows]
    return msgspec.structs.replace(result, rows=rows)


def test_in_place_counts_where_only_that_was_measured() -> None:
    result = in_place_only(result_of(f"{GIB} float 4000.0 3900.0"))
    (curve,) = curves_of(result, ran(result), "mine", "run.log")
    assert curve.times_us == (3900.0,)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"complete": False}, "its sweep did not end"),
        ({"errors": ["h1: rank 3 ended"]}, "it ended with an error: h1: rank 3 ended"),
        ({"argv": ["busbw", "run", "--inject=late"]}, "a fault was injected"),
    ],
)
def test_a_run_that_does_not_show_a_healthy_system_is_refused(
    changes: dict[str, object], reason: str
) -> None:
    result = result_of(f"{GIB} float 4000.0 4000.0")
    refuse_unhealthy(result, "run.log")
    with pytest.raises(UsageError, match=reason) as error:
        refuse_unhealthy(msgspec.structs.replace(result, **changes), "run.log")
    assert str(error.value).startswith("run.log: ")


def test_the_source_names_the_file_the_host_and_the_day() -> None:
    result = msgspec.structs.replace(result_of(f"{GIB} float 9.0 9.0"), start="2026-11-28T12:00:00")
    assert source_of(result, "mine", "run.log") == CurveSource(
        key="mine", title="run.log, h", date="2026-11-28"
    )


def test_a_run_has_the_name_of_its_file_and_a_number_if_that_is_taken() -> None:
    assert run_name("/tmp/a.json", set()) == "a"
    assert run_name("b:c.log", set()) == "b-c"
    assert run_name("-", {"stdin"}) == "stdin-2"
    assert run_name("a.txt", {"a", "a-2"}) == "a-3"


def known(*times_us: float) -> Reference:
    curves = [
        ReferenceCurve(
            source="s",
            run=f"r{at}",
            gpu="h100",
            per_host=8,
            collective="all_reduce",
            dtype="float",
            sizes=(GIB,),
            times_us=(time_us,),
        )
        for at, time_us in enumerate(times_us)
    ]
    return Reference(tuple(curves), {})


def test_a_size_is_compared_with_the_median_of_the_runs_that_have_it() -> None:
    result = result_of(f"{MIB} float 40.0 39.0", f"{GIB} float 8000.0 1000.0")
    comparison = compared_with(result, ran(result), known(3900.0, 4000.0, 8000.0), "run.log")
    small, large = comparison.rows
    assert (small.runs, small.median) == ((), None)
    assert large.runs == ("r0", "r1", "r2")
    assert large.busbw == pytest.approx(GIB / 8e-3 * 7 / 4, rel=1e-3)  # out of place
    assert large.median == pytest.approx(GIB / 4e-3 * 7 / 4)
    assert large.fastest == pytest.approx(GIB / 3.9e-3 * 7 / 4)
    text = comparison_text(comparison)
    assert "run.log: all_reduce on 1 x 8 H100" in text
    assert "median of published runs" in text and "\nruns: r0, r1, r2" in text
    line = next(line for line in text.splitlines() if line.strip().startswith("1 GiB"))
    assert line.split()[2:6] == ["234.88", "469.76", "3", "50.0"] and "below" in line
    assert "type" not in text and "90 % of runs are between" in text


def test_types_stand_beside_sizes_that_were_measured_with_several() -> None:
    result = result_of(f"{GIB} float 4000.0 4000.0", f"{GIB} half 4100.0 4100.0")
    text = comparison_text(compared_with(result, ran(result), known(4000.0), "run.log"))
    assert "type" in text and "half" in text


def test_without_a_run_it_says_what_the_table_has() -> None:
    result = result_of(f"{MIB} float 40.0 39.0")
    text = comparison_text(compared_with(result, ran(result), known(4000.0), "run.log"))
    assert "\nno reference: the runs of all_reduce on 1 x 8 H100 have 1 GiB, not 1 MiB" in text


def test_what_expected_rests_on_has_no_column_where_nothing_is_expected() -> None:
    result = result_of(f"{MIB} float 40.0 39.0")
    comparison = compared_with(result, ran(result), known(4000.0), "run.log")
    rows = [msgspec.structs.replace(row, expected=None) for row in comparison.rows]
    nothing = msgspec.structs.replace(comparison, rows=rows)
    titles = [[column.title for column in columns(some)] for some in (comparison, nothing)]
    assert ["from" in some for some in titles] == [True, False]


def test_a_plot_has_the_measured_busbw_at_its_part_of_the_reference() -> None:
    result = result_of(f"{GIB} float 8000.0 8000.0", f"{2 * GIB} float 1000.0 1000.0")
    comparison = compared_with(result, ran(result), known(4000.0), "run.log")
    ruler, half, above, _ = plot_text(comparison.rows, 80).splitlines()
    whole, start = half.index("|"), len("    1 GiB ")
    assert ruler.index("100 %") == whole == start + 33  # of 50 characters for 150 %
    assert half.index("o") == start + 17
    assert above.endswith(">") and len(above) == 10 + 51
    assert "-" in half[whole - 2 : whole + 8]
