"""Every layout nccl-tests has printed is read, out of the logs it lies in."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from busbw.core.collectives import BY_NAME
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict
from busbw.core.result import Cell, Result, ResultRow
from busbw.measure.formats import read_nccl_tests_text
from busbw.report.read import read as read_any
from busbw.report.registry import view

Make = Callable[..., Result]
read = read_nccl_tests_text.read

OLDEST = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid  18104 on     node1 device  0 [0x04] Tesla P100-PCIE-16GB
#   Rank  1 Pid  18104 on     node1 device  1 [0x06] Tesla P100-PCIE-16GB
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2   float     sum    20.48    0.01    0.01  0e+00    19.92    0.02    0.02  2e-07
     1048576        262144     int     sum    812.4    1.29    1.29  0e+00    810.1    1.29    1.29    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.652
#
"""
TITLES = """\
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""


def cells(result: Result) -> list[Cell]:
    all_cells = [cell for row in result.rows for cell in (row.out_of_place, row.in_place)]
    return [cell for cell in all_cells if cell is not None]


def test_a_real_run_is_written_again_as_it_was(recorded: Path) -> None:
    text = (recorded / "nccl_tests/all_reduce_2xH200_one_process.txt").read_text()
    result = read(text)
    assert view("nccl-tests").render(result) == text
    assert (result.world.ranks, result.world.processes, result.complete) == (2, 1, True)
    assert result.spec.datatype == "float"


def test_two_nodes_of_h100(recorded: Path) -> None:
    result = read((recorded / "nccl_tests/old/all_reduce_2x8_h100.txt").read_text())
    assert (result.spec.collective, result.program) == ("all_reduce", "all_reduce_perf")
    assert (result.world.ranks, result.world.processes, result.world.devices[8].host) == (
        16,
        16,
        "inst-yyyyy-h100-ol89",
    )
    assert (result.world.devices[8].bus, result.world.devices[8].name) == (
        "0x0f",
        "NVIDIA H100 80GB HBM3",
    )
    assert (result.rows[-1].size_bytes, result.rows[-1].count) == (17179869184, 4294967296)
    assert cells(result)[-1] == Cell(0.069305, 247.89e9, 464.79e9, 0)
    assert result.average_busbw() == pytest.approx(458.452e9)
    assert (result.spec.warmup_iters, result.spec.step_factor, result.library.nccl) == (5, 2, 0)


def test_white_space_collapsed_and_two_tables_in_one_log(recorded: Path) -> None:
    text = (recorded / "nccl_tests/old/all_reduce_2x8_h20_two_tables.txt").read_text()
    fast, slow = (read(text, table=number) for number in (1, 2))
    assert [row.size_bytes for row in fast.rows] == [
        8,
        16,
        4194304,
        8388608,
        4294967296,
        8589934592,
    ]
    assert cells(fast)[-2:] == [
        Cell(0.033561, 255.95e9, 479.91e9, 0),
        Cell(0.033569, 255.89e9, 479.79e9, 0),
    ]
    assert cells(slow)[-1] == Cell(1.782046, 4.82e9, 9.04e9, 0)
    assert (fast.world.devices[0].pid, slow.world.devices[0].pid) == (466205, 460146)
    first = read(text)
    assert first.rows == fast.rows
    # The recording has not all rows.
    assert [(finding.id, finding.verdict) for finding in first.findings] == [
        ("log.average", Verdict.WARN),
        ("log.tables", Verdict.WARN),
    ]
    assert "2 tables" in first.findings[1].message


def test_the_oldest_layout_has_no_root_and_a_deviation_for_wrong() -> None:
    result = read(OLDEST, collective="allreduce")
    assert result.world.devices[1].index == 1
    assert [row.root for row in result.rows] == [-1, -1]
    assert [row.dtype for row in result.rows] == ["float", "int32"]
    # 2e-07 is a deviation, which does not tell how many elements are wrong.
    assert [cell.wrong for cell in cells(result)] == [0, None, 0, None]
    assert cells(result)[2].time_s == pytest.approx(812.4e-6)


def test_oldest_rooted_layout_without_redop() -> None:
    text = OLDEST.replace("type   redop", "type    root").replace("  sum", "    3")
    result = read(text, collective="broadcast")
    assert [(row.op, row.root) for row in result.rows] == [("", 3), ("", 3)]
    assert result.spec.root == "3"


def test_the_collective_must_be_given_when_neither_log_nor_table_names_it() -> None:
    unsure = (
        TITLES
        + "        1024           256     float     sum      -1    20.00    0.00    0.00    N/A   "
        " 21.00    0.00    0.00    N/A\n"
    )
    with pytest.raises(UsageError, match="it does not name the collective") as caught:
        read(unsure)
    assert "all_reduce" in caught.value.hint
    assert (
        read("$ ./build/reduce_scatter_perf -b 8 -e 128M\n" + unsure).spec.collective
        == "reduce_scatter"
    )
    # A line that builds the tests names them all and starts none.
    with pytest.raises(UsageError, match="it does not name the collective"):
        read("Linking  all_reduce.o > ../build/all_reduce_perf\n" + unsure)


def test_hypercube_has_twelve_fields(make: Make, make_cell: Callable[..., Cell]) -> None:
    rows = [ResultRow(1024, 128, "float", "", -1, make_cell(20, 1, 1), make_cell(21, 2, 2), 20)]
    result = read(view("nccl-tests").render(make(rows, spec={"collective": "hypercube"})))
    assert (result.rows[0].op, result.rows[0].root, cells(result)[1].busbw) == ("", -1, 2e9)


@pytest.mark.parametrize("host", ["node1", "38dcf168f605"])  # and the id of a container
def test_lines_of_nccl_between_and_inside_rows(make: Make, host: str) -> None:
    text = view("nccl-tests").render(make())
    start = text.index("    16.61")
    noise = f"{host}:1386:1386 [0] NCCL INFO Channel 00/16 : 0 1\n"
    glued = f"{host}:1386:1390 [1] NCCL INFO Connected all rings\n"
    noisy = (
        noise
        + "NCCL version 2.28.9+cuda13.0\n"
        + noise
        + text[:start]
        + glued
        + noise
        + text[start:]
    )
    assert read(noisy) == read(text)


@pytest.mark.parametrize("label", ["[1,0]<stdout>: ", "0: "])
def test_lines_labelled_by_a_launcher(make: Make, label: str) -> None:
    text = view("nccl-tests").render(make())
    assert read("".join(label + line for line in text.splitlines(keepends=True))) == read(text)


def test_the_version_of_nccl_from_its_own_line() -> None:
    result = read("NCCL version 2.16.5+cuda11.8\n" + OLDEST, collective="all_reduce")
    assert (result.library.engine, result.library.nccl) == ("nccl", 21605)


def test_a_log_that_ends_early_is_incomplete() -> None:
    text = "# Collective test starting: all_gather_perf\n" + TITLES
    row = (
        "        1024           128     float    none      -1    20.00    1.00    0.50      0   "
        " 21.00    1.00    0.50      0\n"
    )
    result = read(text + row + row[:60])
    assert (len(result.rows), result.complete) == (1, False)
    assert result.findings[0].id == "log.rows"
    assert "1 line of the table" in result.findings[0].message
    failed = read(
        text
        + row
        + "node1: Test NCCL failure common.cu:1005 'unhandled system error / x'\n .. node1 pid 7:"
        " Test failure\n"
    )
    assert failed.errors == ["node1: Test NCCL failure common.cu:1005 'unhandled system error / x'"]


def test_cputime_column_is_not_the_time(make: Make) -> None:
    result = make(spec={"report_cputime": 1})
    for row in result.rows:
        for cell in (row.out_of_place, row.in_place):
            assert cell
            cell.cpu_time_s = 2e-6
    reread = read(view("nccl-tests").render(result))
    assert reread.spec.report_cputime == 1
    assert [cell.cpu_time_s for cell in cells(reread)] == [2e-6] * 4
    assert cells(reread)[2].time_s == pytest.approx(21.19e-6, rel=1e-3)  # from the bandwidth


@pytest.mark.parametrize(
    ("second", "full_s"), [(0, 1.024e-6), (1, 0.512e-6)], ids=["one group", "two groups"]
)
def test_the_full_time_counts_the_ranks_of_one_group(
    make: Make, make_cell: Callable[..., Cell], second: int, full_s: float
) -> None:
    spec = {"collective": "all_gather", "report_cputime": 1}
    text = view("nccl-tests").render(
        make([ResultRow(1024, 64, "float", "none", -1, make_cell(21, 1, 1), None, 20)], spec=spec)
    )
    more = "".join(
        f"#  Rank  {rank} Group  {second} Pid   1386 on      node1 device  {rank} [0000:00:08]"
        " NVIDIA H200\n"
        for rank in (2, 3)
    )
    result = read(
        text.replace("NVIDIA H200\n#\n", f"NVIDIA H200\n{more}#\n"), collective="all_gather"
    )
    assert (len(result.world.devices), result.world.groups) == (4, 1 + second)
    assert cells(result)[0].time_s == pytest.approx(full_s)


def test_all_values_of_header_and_footer(make: Make) -> None:
    spec = {
        "blocking": 3,
        "per_iter_timing": 1,
        "per_iter_skip": 2,
        "parallel_init": 1,
        "report_timestamps": 1,
        "unalign": 1,
        "memory": 1,
    }
    memory = {"init": 523 << 20, "user": 3 << 30, "collective": 12 << 10, "total": 4 << 30}
    result = make(
        spec=spec | {"output_file": "run.json"},
        memory=memory,
        errors=["bad news"],
        out_of_bounds=2,
        reduced_max_bytes=77,
    )
    for row in result.rows:
        row.timestamp = "2026-11-21 18:24:52"
        for cell in (row.out_of_place, row.in_place):
            assert cell
            cell.samples_s = [1e-5, 2e-5, 3e-5]
    reread = read(view("nccl-tests").render(result))
    assert reread.spec == result.spec
    assert (reread.memory, reread.errors, reread.out_of_bounds, reread.reduced_max_bytes) == (
        memory,
        ["bad news"],
        2,
        77,
    )
    assert [row.timestamp for row in reread.rows] == ["2026-11-21 18:24:52"] * 2
    assert [cell.busbw for cell in cells(reread)] == pytest.approx([0, 0, 49.49e9, 70.76e9])


def test_the_words_of_rccl_tests() -> None:
    text = OLDEST.replace(
        "nThread 1 nGpus 2 minBytes 8 maxBytes 134217728",
        "nThread: 1 nGpus: 2 minBytes: 8 maxBytes: 134217728",
    )
    spec = read(
        text.replace("step: 2(factor) warmup iters: 5", "step: 2(factor) warmupIters: 5"),
        collective="all_reduce",
    ).spec
    assert (spec.ngpus, spec.max_bytes, spec.step_factor, spec.warmup_iters, spec.iters) == (
        2,
        134217728,
        2,
        5,
        20,
    )


def test_columns_that_later_releases_add_are_passed_over() -> None:
    text = "# Collective test starting: all_reduce_perf\n"
    text += (
        "# size count type redop root time algbw busbw #wrong #bitdiff time algbw busbw #wrong"
        " #bitdiff\n"
    )
    row = read(text + "8 2 float sum -1 43.58 0.10 0.20 0 7 31.56 0.30 0.40 2 9\n").rows[0]
    assert row.in_place
    assert (row.root, row.in_place.time_s, row.in_place.busbw, row.in_place.wrong) == (
        -1,
        31.56 / 1e6,
        0.4e9,
        2,
    )


def test_no_table_is_an_error() -> None:
    with pytest.raises(UsageError, match="no row of a table"):
        read("hello\n1 2 3\n")


def test_one_placement_alone_keeps_its_side(make: Make, make_cell: Callable[..., Cell]) -> None:
    for first, second in ((None, make_cell(21, 1, 1)), (make_cell(21, 1, 1), None)):
        row = ResultRow(1024, 128, "float", "sum", -1, first, second, 20)
        reread = read(view("nccl-tests").render(make([row]))).rows[0]
        assert (reread.out_of_place is None, reread.in_place is None) == (
            first is None,
            second is None,
        )


FIGURES = st.tuples(
    st.floats(1e-7, 1e3),
    st.floats(0, 9e5),
    st.floats(0, 9e5),
    st.one_of(st.none(), st.integers(0, 10**5)),
)
ROWS = st.lists(
    st.tuples(st.integers(1, 2**40), st.integers(0, 2**38), FIGURES, FIGURES),
    min_size=1,
    max_size=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=ROWS)
def test_values_are_read_to_the_printed_precision(
    make: Make, drawn: list[tuple[int, int, tuple, tuple]]
) -> None:  # type: ignore[type-arg]
    def cell(figures: tuple[float, float, float, int | None]) -> Cell:
        time_s, algbw, busbw, wrong = figures
        return Cell(time_s, algbw * 1e9, busbw * 1e9, wrong)

    result = make(
        [
            ResultRow(size, count, "float", "sum", -1, cell(out), cell(into), 20)
            for size, count, out, into in drawn
        ]
    )
    reread = read(view("nccl-tests").render(result))
    assert [(row.size_bytes, row.count) for row in reread.rows] == [row[:2] for row in drawn]
    for read_cell, printed_cell in zip(cells(reread), cells(result), strict=True):
        assert read_cell.wrong == printed_cell.wrong
        # Two decimals at best; with growing size the six or seven columns leave fewer, down to two
        # digits.
        assert read_cell.time_s == pytest.approx(printed_cell.time_s, rel=0.05, abs=5.1e-9)
        assert read_cell.algbw == pytest.approx(
            printed_cell.algbw, rel=5e-4 if printed_cell.algbw < 9e14 else 0.5, abs=5.1e6
        )
        assert read_cell.busbw == pytest.approx(
            printed_cell.busbw, rel=5e-4 if printed_cell.busbw < 9e14 else 0.5, abs=5.1e6
        )
    assert view("nccl-tests").render(read(view("nccl-tests").render(reread))) == view(
        "nccl-tests"
    ).render(reread)


@pytest.mark.parametrize("name", BY_NAME)
def test_measurements_of_busbw_run_are_read_back(make: Make, name: str) -> None:
    result = make(spec={"collective": name}, program="busbw run", argv=["busbw", "run", name])
    for form in ("nccl-tests", "nccl-tests-json"):
        reread = read_any(view(form).render(result).encode(), "nt")
        assert (reread.spec.collective, len(reread.rows)) == (name, 2)


def test_a_table_of_several_is_chosen_by_its_number(recorded: Path) -> None:
    text = (recorded / "nccl_tests/old/all_reduce_2x8_h20_two_tables.txt").read_text()
    second = read(text, table=2)
    assert (second.rows[-1].size_bytes, cells(second)[-1].busbw) == (8589934592, 9.04e9)
    assert "log.tables" not in [
        finding.id for finding in second.findings + read(text, table=1).findings
    ]
    with pytest.raises(UsageError, match="the log holds 2 tables"):
        read(text, table=3)
