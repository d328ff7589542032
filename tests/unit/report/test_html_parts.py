"""The parts of the report: axes, curves, bounds, the table of rows, the comparison."""

import math
import re
from collections.abc import Callable
from xml.etree.ElementTree import Element

import html5lib
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.cells import all_figures
from busbw.core.result import Cell, EngineLibrary, Ideal, Mismatch, Result, ResultRow, World
from busbw.core.sweep import Sampling, SweepSpec
from busbw.history import comparison_text as text
from busbw.report import summary
from busbw.report.comparison import comparison
from busbw.report.machine import machine, run
from busbw.report.page import page
from busbw.report.plots import plots
from busbw.report.rows import ReportInput, alike, of_one_kind, rows
from busbw.stats.compare import compare
from busbw.ui.html.axes import Axis, ends, size_ticks, ticks

Make = Callable[..., Result]


def words(element: Element) -> str:
    return " ".join("".join(element.itertext()).split())


def grid(table: Element) -> list[list[str]]:
    """The texts of a table, line by line."""
    return [[words(cell) for cell in line] for line in table.iter("tr")]


def marked(root: Element, kind: str) -> list[Element]:
    return [element for element in root.iter() if kind in (element.get("class") or "").split()]


@pytest.fixture
def precise(make: Make) -> Result:
    """Two sizes with samples: 10 us and 1 ms, one precise, one that ran out of time."""

    def cell(scale: float, stopped: str) -> Cell:
        samples = [scale * (90 + 8 * number % 21) / 100 for number in range(21)]
        bandwidth = 8e-6 / scale
        return Cell(
            scale,
            bandwidth,
            bandwidth,
            0,
            samples_s=samples,
            low_s=scale * 0.8,
            high_s=scale * 1.25,
            op_s=scale * 0.75,
            skew_s=scale * 0.25,
            launch_s=2e-6,
            stopped=stopped,
        )

    rows = [
        ResultRow(8, 2, "float", "sum", -1, cell(1e-5, "ok"), cell(1e-5, "ok"), 21),
        ResultRow(4096, 1024, "float", "sum", -1, cell(1e-3, "unstable"), None, 21),
    ]
    result = make(
        rows,
        ideal=Ideal(4e9, "Ring", "NVLink", "why"),
        endpoint_ideal=Ideal(8e9, "endpoint-optimal", "NVLink", "why"),
    )
    result.spec = msgspec.structs.replace(result.spec, sampling=Sampling(confidence=0.99))
    return result


@given(st.floats(1e-9, 1e12), st.floats(1e-9, 1e12), st.integers(4, 12))
def test_an_axis_has_two_ticks_at_least_and_no_more_than_asked(
    first: float, other: float, limit: int
) -> None:
    low, high = ends([first, other], 0.04, 0.08)
    axis_ticks = ticks(low, high, limit)
    assert 2 <= len(axis_ticks) <= limit
    assert all(low <= value <= high for value in axis_ticks)
    assert low < min(first, other) <= max(first, other) < high
    axis = Axis(low, high, 300, 20)
    assert 300 >= axis.at(min(first, other)) >= axis.at(max(first, other)) >= 20


@given(st.integers(1, 1 << 40), st.integers(1, 1 << 40), st.integers(4, 11))
def test_sizes_are_marked_at_powers_of_two(first: int, other: int, limit: int) -> None:
    low, high = ends([first, other], 0.02, 0.02)
    axis_ticks = size_ticks(low, high, limit)
    assert 1 <= len(axis_ticks) <= limit
    assert all(size & (size - 1) == 0 and low <= size <= high for size in axis_ticks)


def test_ticks_are_round_and_as_dense_as_there_is_room() -> None:
    assert ticks(0.0003, 700, 8) == pytest.approx([0.001, 0.01, 0.1, 1, 10, 100])
    assert ticks(0.9, 25, 8) == pytest.approx([1, 2, 5, 10, 20])
    assert ticks(0.9, 2500, 8) == pytest.approx([1, 3, 10, 30, 100, 300, 1000])
    assert size_ticks(8, 8 << 30, 11) == [1 << power for power in range(3, 34, 3)]
    assert size_ticks(8, 8 << 30, 5) == [8, 8 << 10, 8 << 20, 8 << 30]


def path(element: Element) -> list[tuple[float, float]]:
    return [
        (float(x), float(y))
        for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", element.get("d", ""))
    ]


def logarithmic_plots(result: Result) -> tuple[Element, Element]:
    """Those of busbw and of time, for wide windows."""
    bandwidth, time = (marked(figure, "wide") for figure in plots([ReportInput(0, "r", result)]))
    return bandwidth[1], time[0]


def test_busbw_is_drawn_from_zero_and_behind_the_switch_logarithmic(precise: Result) -> None:
    figure = plots([ReportInput(0, "r", precise)])[0]
    assert words(marked(figure, "switch")[0]) == "logarithmic axis"
    ticks_of = {
        kind: [words(tick) for tick in marked(marked(marked(figure, kind)[0], "wide")[0], "y")]
        for kind in ("linear", "log")
    }
    assert ticks_of["linear"] == ["0", "2", "4", "6", "8"]  # to the ideal, 8 GB/s
    assert ticks_of["log"][-2:] == ["0.1", "10"]
    described = [words(text) for text in figure.iter("desc")]
    assert [text.partition(". ")[0] for text in described] == [
        *["The axis of busbw is linear"] * 2,
        *["Both axes are logarithmic"] * 2,
    ]


def test_a_curve_stands_where_its_figures_are(precise: Result) -> None:
    bandwidth, time = logarithmic_plots(precise)
    (low, high), (fast, slow) = (
        path(marked(marked(plot, "out")[0], "line")[0]) for plot in (bandwidth, time)
    )
    assert low[0] < high[0]
    assert (low[0], high[0]) == (fast[0], slow[0])
    assert fast[1] > slow[1]  # downwards in pixels: 10 us stands below 1 ms
    assert low[1] < high[1]  # 0.8 bytes/s stands above 0.008
    assert [words(note) for note in marked(time, "out")[0].iter("title")] == [
        "8 B float out of place: 10.00 us, busbw 8.00e-10 GB/s",
        "4 KiB float out of place: 1.000 ms, busbw 8.00e-12 GB/s",
    ]


def test_the_interval_of_busbw_is_that_of_the_time_turned_round(precise: Result) -> None:
    bandwidth, time = logarithmic_plots(precise)
    heights = {}
    for name, plot in (("busbw", bandwidth), ("time", time)):
        curve = marked(plot, "out")[0]
        centre = path(marked(curve, "line")[0])[0][1]
        start, end = re.findall(
            r"M[\d.]+ ([\d.]+)V([\d.]+)", marked(curve, "interval")[0].get("d", "")
        )[0]
        assert float(start) > centre > float(end)
        heights[name] = (float(start) - centre) / (centre - float(end))
    assert heights["time"] == pytest.approx(math.log(1 / 0.8) / math.log(1.25), abs=0.15)
    assert heights["busbw"] == pytest.approx(1, abs=0.15)


def test_bounds_are_lines_and_one_line_where_files_share_them(precise: Result, make: Make) -> None:
    bound_texts = [
        words(rule)
        for rule in marked(marked(plots([ReportInput(0, "r", precise)])[0], "wide")[0], "rule")
    ]
    assert bound_texts == ["endpoint ideal 8", "ideal 4"]
    shared = plots(
        [ReportInput(0, "a", precise), ReportInput(1, "b", make()), ReportInput(2, "c", precise)]
    )[0]
    rules = marked(marked(shared, "wide")[0], "rule")
    assert [words(rule) for rule in rules] == ["A C endpoint ideal 8", "A C ideal 4"]
    assert [rule.get("class") for rule in rules] == ["rule", "rule"]


def test_the_launch_cost_is_drawn_where_it_was_measured(precise: Result, make: Make) -> None:
    time = plots([ReportInput(0, "r", precise)])[1]
    assert "launch cost on the host" in words(time)
    assert len(path(marked(marked(marked(time, "wide")[0], "launch")[0], "line")[0])) == 2
    assert marked(plots([ReportInput(0, "r", make())])[1], "launch") == []


def test_values_without_a_logarithm_are_left_out(
    make: Make, make_cell: Callable[..., Cell]
) -> None:
    bad = [
        ResultRow(size, 1, "float", "sum", -1, make_cell(time, 1, busbw), None, 20)
        for size, time, busbw in ((0, 1, 1), (8, math.nan, 1))
    ]
    good = [
        ResultRow(8, 1, "float", "sum", -1, make_cell(9, 1, 0), None, 20),
        ResultRow(16, 1, "float", "sum", -1, make_cell(9, 1, 1), None, 20),
    ]
    bandwidth, time = (
        marked(figure, "wide")[0] for figure in plots([ReportInput(0, "r", make(bad + good))])
    )
    assert [len(list(plot.iter("circle"))) for plot in (bandwidth, time)] == [1, 2]


def test_the_table_of_a_precise_run_has_all_columns(precise: Result) -> None:
    table = grid(rows(precise))
    assert " | ".join(table[0]) == (
        "size | placement | time | interval 99 % | n | stop | launch us | skew us | algbw GB/s"
        " | busbw GB/s | ideal % | wrong"
    )
    shared = [
        "10.00 us",
        "8.00 – 12.50 us",
        "21",
        "ok",
        "2.00",
        "2.50",
        "8.00e-10",
        "8.00e-10",
        "<0.1",
        "0",
    ]
    assert table[1] == ["8 B", "out of place", *shared]
    assert table[2] == ["in place", *shared]
    assert table[3][2:8] == ["1.000 ms", "800.0 us – 1.250 ms", "21", "unstable", "2.00", "250.0"]
    assert [words(cell) for cell in marked(rows(precise), "warn")] == ["unstable"]


def test_a_classic_table_has_no_columns_of_precise_timing(make: Make) -> None:
    table = grid(rows(make()))
    assert " | ".join(table[0]) == (
        "size | type | placement | time | n | algbw GB/s | busbw GB/s | wrong"
    )
    assert table[3] == ["1 MiB", "float", "out of place", "21.19 us", "20", "49.49", "49.49", "0"]


def test_only_the_table_of_a_rooted_collective_has_roots(make: Make) -> None:
    titles = grid(rows(make(spec={"collective": "broadcast"})))[0]
    assert "root" in titles
    assert "op" not in titles


def test_wrong_elements_are_listed_one_by_one(precise: Result) -> None:
    cell = precise.rows[0].in_place
    assert cell is not None
    cell.wrong, cell.mismatches = 30, [Mismatch(rank, 7, "1.5", "nan", 1) for rank in range(30)]
    page_rows = rows(precise)
    items = [words(item) for item in page_rows.iter("li")]
    assert (
        items[0]
        == "8 B float in place: rank 0 got nan instead of 1.5 at element 7; 1 wrong on this rank"
    )
    assert items[20:] == ["and 10 more"]
    assert len(marked(page_rows, "wrong")) == 1


def faster(result: Result, factor: float) -> Result:
    """The same run with every time divided by `factor`."""
    copy = msgspec.convert(msgspec.to_builtins(result), Result)
    for figure in all_figures(copy):
        figure.cell.time_s /= factor
        figure.cell.samples_s = [sample / factor for sample in figure.cell.samples_s or []]
    return copy


def compared(first: Result, other: Result) -> list[Element]:
    """What the report says of two files: notes, then the table."""
    files = [("a.json", first), ("b.json", other)]
    inputs = [ReportInput(index, *file) for index, file in enumerate(files)]
    return comparison(inputs, {1: compare(files[:1], files[1:])})


def test_files_stand_side_by_side_with_ratio_and_verdict(precise: Result) -> None:
    table = grid(compared(precise, faster(precise, 2))[-1])
    assert table[0] == ["", "A a.json", "B b.json"]
    assert " | ".join(table[1]) == (
        "size | type | op | placement | time A | time B | ratio B | verdict B"
    )
    assert table[2][4:6] == ["10.00 us", "5.00 us"]
    assert re.fullmatch(r"0\.500x 0\.\d{3} to 0\.\d{3}", table[2][6])
    assert [line[-1] for line in table[2:]] == ["faster"] * 3


@pytest.mark.parametrize("sampled", [True, False])
def test_page_and_terminal_judge_in_the_same_words(
    make: Make, precise: Result, sampled: bool
) -> None:
    result = precise if sampled else make()
    other = faster(result, 2)
    judged = compare([("a.json", result)], [("b.json", other)])
    notes = " ".join(map(words, compared(result, other)[:-1]))
    for line in (text.summary(judged), *text.closing(judged)):
        assert line in notes and line in text.text(judged)
    assert ("confidence" in notes) is sampled
    assert ("single means, which cannot be tested" in notes) is not sampled


def test_repeats_have_own_rows_and_one_median_when_compared(make: Make) -> None:
    def repeated(scale: float) -> Result:
        parts = [make().rows for _ in range(3)]
        for repeat, part in enumerate(parts):
            for row in part:
                row.repeat = repeat
                row.out_of_place.time_s = scale * (1 + repeat) * 1e-5
        return make([row for part in parts for row in part], spec={"sampling": {"repeats": 3}})

    first, other = repeated(1), repeated(3)
    table = grid(rows(first))
    column = table[0].index("repeat")
    assert [line[column] for line in table[1::2]] == ["0", "0", "1", "1", "2", "2"]
    lines = grid(compared(first, other)[-1])[2:]
    assert [line[0] for line in lines] == ["8 B", "8 B", "1 MiB", "1 MiB"]
    assert lines[0][4:6] == ["20.00 us", "60.00 us"]


def test_cells_of_one_side_have_no_ratio(make: Make) -> None:
    first, other = make(), make()
    other.rows.pop(0)
    table = grid(compared(first, other)[-1])
    assert [line[-2:] for line in table[2:]] == [["–", "unmatched"]] * 2 + [["1.000x", "same"]] * 2


def test_sweeps_of_other_hosts_and_sizes_are_drawn_together_and_not_compared(make: Make) -> None:
    def on(host: str, name: str) -> World:
        devices = [
            msgspec.structs.replace(device, host=host, name=name) for device in make().world.devices
        ]
        return World(devices, 2)

    larger, halves = make(world=on("h1", "H100")), make(world=on("h1", "H100"))
    for row in larger.rows:
        row.size_bytes *= 1 << 30
    for row in halves.rows:
        row.dtype = "half"
    results = [
        make(world=on("h1", "H100")),
        make(world=on("h2", "H100")),
        make(world=on("h1", "H200")),
        larger,
        halves,
        make(world=on("h2", "H100")),
    ]
    inputs = [ReportInput(index, f"{index}.json", result) for index, result in enumerate(results)]
    assert [len(group) for group in of_one_kind(inputs)] == [6]
    comparisons = {5: compare([("x", results[1])], [("y", results[5])])}
    assert [words(sentence) for sentence in summary.sentence(inputs, comparisons)] == [
        "B is not compared with A: host h2 against host h1.",
        "F compared with B: none of 4 cells slower, 0 faster.",
        "C is not compared with A: H200 against H100.",
        "D is not compared with A: 8 GiB to 1024 TiB against 8 B to 1 MiB.",
        "E is not compared with A: half sum against float sum.",
    ]
    ratio = [words(figure) for figure in plots(inputs, comparisons)][2:]
    assert len(ratio) == 1 and ratio[0].startswith("Time over the time of B")


def test_only_files_of_one_collective_engine_and_number_of_ranks_are_compared(make: Make) -> None:
    eight = World([*make().world.devices] * 4, 8)
    results = [
        make(),
        make(spec={"collective": "all_gather"}),
        make(library=EngineLibrary("sim")),
        make(),
        make(library=EngineLibrary("sim"), world=eight),
    ]
    results += [make(library=EngineLibrary("")), make(library=EngineLibrary("sim"))]
    inputs = [ReportInput(index, f"{index}.json", result) for index, result in enumerate(results)]
    assert [[source.letter for source in group] for group in alike(inputs)] == [
        ["A", "D", "F"],
        ["B"],
        ["C", "G"],
        ["E"],
    ]
    comparisons = {
        index: compare([("x", results[base])], [("y", results[index])])
        for base, index in ((0, 3), (0, 5), (2, 6))
    }
    assert [words(sentence) for sentence in summary.sentence(inputs, comparisons)] == [
        "D compared with A: none of 4 cells slower, 0 faster.",
        "F compared with A: none of 4 cells slower, 0 faster.",
        "B is not compared with A: AllGather against AllReduce.",
        "C is not compared with A: sim engine against nccl engine.",
        "G compared with C: none of 4 cells slower, 0 faster.",
        "E is not compared with A: sim engine against nccl engine, 8 ranks against 2 ranks.",
    ]
    _, *notes, common, _ = comparison([inputs[0], inputs[3], inputs[5]], comparisons)
    assert words(common).startswith("All of them: ")
    assert [note for note in notes if "judged by" in words(note)] == []
    assert "judged by" in words(common)
    _, note, box = comparison([inputs[2], inputs[6]], comparisons)
    assert words(note).startswith(
        "G (called B here) compared with C (called A here): none of 4 cells slower"
    )
    assert grid(box)[0] == ["", "C 2.json", "G 6.json"]
    root = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(
        page(list(zip("abcdefg", results, strict=True)), comparisons)
    )
    legends = [
        "".join(figure.itertext())
        for figure in root.iter("figure")
        if "Bus bandwidth" in words(figure)
    ]
    assert [re.findall(r"[A-G] [a-g](?=[A-Zo])", legend) for legend in legends] == [
        ["A a", "D d", "F f"],
        [],
        ["C c", "G g"],
        [],
    ]


def test_the_machine_and_the_run_are_described(make: Make) -> None:
    result = make(
        environment={"NCCL_DEBUG": "INFO"},
        errors=["no room"],
        complete=False,
        reduced_max_bytes=1 << 20,
    )
    page_text = " ".join(words(part) for part in machine(result))
    for piece in (
        "2 ranks in 1 process",
        "node1.example.org",
        "0000:00:06",
        "2.28.9",
        "NCCL_DEBUG",
    ):
        assert piece in page_text
    text = " ".join(words(part) for part in run(result))
    for piece in (
        "./build/all_reduce_perf",
        "2026-11-21 18:24:58",
        "lowered to 1 MiB",
        "no: these sizes",
    ):
        assert piece in text
    assert "does not describe the machine" in words(
        machine(Result(SweepSpec(collective="broadcast")))[0]
    )
