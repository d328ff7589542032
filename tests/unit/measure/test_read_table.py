"""busbw's own table is read back: what it holds is there again, and nothing else."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from results import result as make_result

import busbw
from busbw.cli.main import guarded
from busbw.cli.terminal import COLUMNS
from busbw.core.cells import figures, headline
from busbw.core.collectives import COLLECTIVES
from busbw.core.errors import UsageError
from busbw.core.finding import LOG_RANKS, LOG_ROWS, LOG_TABLES, RunFinding, Verdict
from busbw.core.result import Cell, EngineLibrary, Ideal, RankDevice, Result, ResultRow, World
from busbw.core.sweep import Sampling
from busbw.measure.formats import read_table, read_table_head, table
from busbw.measure.formats.ideal_text import larger_text
from busbw.report.read import read
from busbw.report.registry import view
from busbw.ui.colors import with_colors
from busbw.ui.number_formats import bandwidth_text

RECORDED = Path(__file__).parents[3] / "benchmarks" / "visits_202611" / "shown.json"
SECONDS = st.floats(1e-7, 50.0)
NAMES = st.sampled_from(["NVIDIA H200", "CPU", "AMD EPYC 9654 96-Core, Processor"])
TEXT = st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=60).map(str.strip)

DAMAGE = ["", " ", "-", "nan", "1.2.3", "9" * 400, "1e999", "?"]


def printed(result: Result, width: int | None = None) -> str:
    return view("table", width).render(result)


def measured_lines(text: str) -> list[str]:
    """The head and the rows: what stands above the bars."""
    return text.partition("\nbusbw  ")[0].splitlines()


@st.composite
def cells(draw: st.DrawFn, sampling: Sampling | None, in_place: bool) -> Cell:
    time_s = draw(SECONDS)
    algbw = draw(st.floats(1e2, 1e12)) * math.pi  # not halfway between two that are printed
    cell = Cell(time_s, algbw, algbw * 1.5, draw(st.sampled_from([0, None])))
    if sampling is not None and not in_place:
        cell.low_s, cell.high_s = time_s * draw(st.floats(0.9, 1)), time_s
        cell.stopped = draw(st.sampled_from(["ok", "budget", "unstable"]))
        cell.n = draw(st.integers(1, 9999))
        cell.skew_s = draw(st.none() | st.floats(0, 9e-4))
    return cell


@st.composite
def sweeps(draw: st.DrawFn) -> Result:
    collective = draw(st.sampled_from([row for row in COLLECTIVES if not row.uneven]))
    sampling = draw(st.none() | st.just(Sampling(precision=0.05, confidence=0.95)))
    spec = {"min_bytes": 16, "max_bytes": 1 << 30, "step_factor": 4, "sampling": sampling}
    ranks, name = draw(st.sampled_from([2, 4, 8])), draw(NAMES)
    wrong = draw(st.booleans())
    rows = []
    for power in range(draw(st.integers(1, 4))):
        out_of_place, in_place = draw(cells(sampling, False)), draw(cells(sampling, True))
        in_place.wrong = out_of_place.wrong if collective.in_place_checked else None
        if wrong:
            out_of_place.wrong, in_place.wrong = draw(st.integers(0, 9)), None
        size = 16 << 2 * power
        count = collective.buffers(size // 4, ranks, 4).count
        op, root = "sum" if collective.reduces else "", 1 if collective.rooted else -1
        rows.append(ResultRow(size, count, "float", op, root, out_of_place, in_place, 20))
    findings = draw(
        st.lists(
            st.builds(
                RunFinding,
                st.sampled_from(["data", "link.width"]),
                st.sampled_from(Verdict),
                TEXT.map(lambda text: f"m {text}".strip()),
                TEXT,
                TEXT,
            ),
            max_size=3,
        )
    )
    top = max(figure.cell.busbw for row in rows for figure in figures(row))
    ideals = st.floats(0.5, 1e4).map(lambda times: times * top)
    return make_result(
        rows,
        spec=spec | {"collective": collective.name},
        world=World([RankDevice(rank, 1, "h", rank, "", name) for rank in range(ranks)], ranks),
        library=draw(st.builds(EngineLibrary, st.just("nccl"), st.sampled_from([0, 22809, 2804]))),
        loop=draw(st.sampled_from(["", "native", "python"])),
        complete=draw(st.booleans()),
        errors=draw(st.lists(st.just("rank 3 on h: lost"), max_size=1)),
        findings=findings,
        ideal=draw(st.none() | st.builds(Ideal, ideals, st.just("ring"), st.just(""), st.just(""))),
    )


@given(sweeps())
def test_what_is_read_prints_the_same_head_rows_and_findings(result: Result) -> None:
    text = printed(result)
    again = read(text.encode(), "run.txt")
    assert isinstance(again, Result)
    assert measured_lines(printed(again)) == measured_lines(text)
    assert again.complete == result.complete
    assert again.errors == result.errors
    assert again.findings == result.findings
    assert again.wrong() == result.wrong()
    if result.spec.sampling is None:  # else the peak depends on intervals, which are not all there
        peak = re.compile("^peak .*", re.MULTILINE)
        assert peak.findall(printed(again)) == peak.findall(text)


@given(st.text(max_size=300) | st.binary(max_size=300).map(lambda data: data.decode("latin-1")))
def test_anything_below_the_titles_is_read_or_skipped(text: str) -> None:
    head = table.header(make_result())
    try:
        read((head + text).encode(), "x")
    except UsageError as error:
        assert error.hint


@st.composite
def damaged_tables(draw: st.DrawFn) -> str:
    """A printed table with other words in it, without some of its first lines, cut somewhere."""
    lines = printed(draw(sweeps())).splitlines()
    titles = next(number for number, line in enumerate(lines) if " size " in line)
    damaged = st.integers(titles + 2, len(lines) - 1) | st.integers(0, len(lines) - 1)
    for number in draw(st.lists(damaged, max_size=4)):
        words = re.split("( +)", lines[number])
        word = draw(st.integers(0, len(words) - 1))
        words[word] = draw(st.sampled_from(DAMAGE))
        lines[number] = "".join(words)
    missing = draw(st.sets(st.integers(0, titles - 1), max_size=1))
    text = "\n".join(line for number, line in enumerate(lines) if number not in missing)
    return text[: draw(st.none() | st.integers(0, len(text)))]


@given(damaged_tables(), st.sampled_from(["all_reduce", "all_gather", "alltoallv"]))
@example("AllReduce, 2 x EPYC on 1 host, nccl engine, NCCL 2.28.", "all_reduce")
def test_a_damaged_table_is_read_and_printed_or_refused(text: str, collective: str) -> None:
    try:
        in_file = read_table_head.read(text.splitlines()).collective
        again = read(text.encode(), "run.txt", in_file or collective)
    except UsageError as error:
        assert error.hint
    else:
        assert isinstance(again, Result)
        assert printed(again)


def test_a_table_without_its_line_of_the_sweep_has_elements_of_unknown_size() -> None:
    whole = make_result()
    lines = printed(whole).replace("     float", "").replace("      type", "").splitlines()
    text = "\n".join(line for line in lines if "; busbw = " not in line)
    again = read_table.read(text)
    assert [row.dtype for row in again.rows] == ["", ""]
    assert again.rows[1].in_place and whole.rows[1].in_place
    assert again.rows[1].in_place.time_s == pytest.approx(whole.rows[1].in_place.time_s, rel=1e-3)
    broken = read_table.read(text.replace(" us ", ".0 us "))
    assert not broken.rows and [finding.id for finding in broken.findings] == [LOG_ROWS]


def test_a_saved_run_is_shown_as_it_was_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(["show", str(RECORDED)]) == 0
    saved = tmp_path / "run.txt"
    saved.write_text("note: measuring on CPUs\n" + capsys.readouterr().out)
    assert guarded(["show", str(saved)]) == 0
    shown = capsys.readouterr().out
    without_mean = re.compile(r"^mean .*\n", re.MULTILINE)
    original = saved.read_text().partition("\n")[2]
    assert without_mean.sub("", shown) == without_mean.sub("", original)
    for words in (["report", str(saved), "--output", "-"], ["compare", str(saved), str(saved)]):
        assert guarded(words) == 0


@pytest.mark.parametrize(
    ("before", "indent", "space"),
    [("", "    ", " "), ("see below:\n", "  ", " "), ("", "\t", " "), ("", "", "\u00a0")],
)
def test_a_table_that_was_pasted_elsewhere(before: str, indent: str, space: str) -> None:
    shown = printed(busbw.load(RECORDED))
    pasted = before + "".join(f"{indent}{line}\n" for line in shown.splitlines())
    assert read_table.read(pasted.replace("  ", f" {space}")) == read_table.read(shown)


def test_a_table_with_what_nccl_ran_is_read() -> None:
    saved = RECORDED.parents[1] / "inference_2xh200_202611" / "symmetric_kernels.txt"
    result = read_table.read(saved.read_text())
    assert [row.size_bytes for row in result.rows] == [1024 * 4**power for power in range(7)]
    last = result.rows[-1].out_of_place
    assert last is not None and (last.time_s, last.busbw) == pytest.approx((28.93e-6, 144.99e9))
    assert result.complete and not any(found.id == LOG_ROWS for found in result.findings)


def test_only_what_the_table_says_is_known() -> None:
    whole = busbw.run("all_reduce", engine="sim", ranks=4)
    again = read(printed(whole).encode(), "run.txt")
    assert isinstance(again, Result)
    assert again.spec.sampling == Sampling(precision=0.01, confidence=0.99)
    assert (again.start, again.environment, again.links, again.library.versions) == ("", {}, [], {})
    assert {device.host for device in again.world.devices} == {""}
    row, original = again.rows[15], whole.rows[15]
    assert row.in_place and row.out_of_place and original.in_place
    assert (row.size_bytes, row.count) == (original.size_bytes, original.count)
    assert row.in_place.time_s == pytest.approx(original.in_place.time_s, rel=1e-3)
    assert row.out_of_place.samples_s is None and row.in_place.low_s is None
    peak, peak_before = headline(again), headline(whole)
    assert peak and peak_before and peak.busbw == pytest.approx(peak_before.busbw, rel=1e-3)


@pytest.mark.parametrize("width", [None, 80, 60])
@pytest.mark.parametrize(("low", "high"), [(0.9, 1.1), (0.2, 4.0)])
def test_an_unstable_cell_above_the_peak_is_read(
    width: int | None, low: float, high: float
) -> None:
    whole = busbw.run("all_reduce", engine="sim", ranks=4)
    cell = whole.rows[-1].in_place
    assert cell is not None
    cell.stopped, cell.busbw, cell.algbw = "unstable", 5 * cell.busbw, 5 * cell.algbw
    cell.time_s /= 5
    cell.low_s, cell.high_s = low * cell.time_s, high * cell.time_s
    text = printed(whole, width)
    again = read(text.encode(), "run.txt")
    assert isinstance(again, Result)
    assert larger_text(again) == larger_text(whole) and larger_text(whole).startswith("; unstable")
    old = text.partition("; unstable")[0] + "\nmean   1 GB/s\n"  # printed before it said so
    before = f"; less certain cells reach {bandwidth_text(cell.busbw)} GB/s at 8 GiB in place"
    assert larger_text(read_table.read(old)) == before


@pytest.mark.parametrize("width", [80, 60, 40])
def test_the_table_of_a_narrow_terminal_is_read(width: int) -> None:
    whole = make_result(
        ideal=Ideal(450e9, "ring", "NVLink 4", ""),
        findings=[
            RunFinding(
                "data", Verdict.FAIL, "wrong " * 20 + "end", "seen " * 20 + "end", "run again"
            )
        ],
    )
    text = with_colors(view("table", width).render(whole))
    again = read(text.encode(), "typescript")
    assert isinstance(again, Result)
    assert [row.size_bytes for row in again.rows] == [8, 1 << 20]
    assert again.findings == whole.findings and again.ideal == whole.ideal
    assert again.world.ranks == 2 and again.library.nccl == 22809


def test_a_cut_table_has_its_whole_rows_and_did_not_end() -> None:
    text = printed(make_result())
    lines = text.splitlines(keepends=True)
    row = next(number for number, line in enumerate(lines) if line.startswith("     1 MiB"))
    for cut, sizes in (
        ("".join(lines[: row + 1]), [8, 1 << 20]),
        ("".join(lines[:row]) + lines[row][:30], [8]),
    ):
        again = read(cut.encode(), "cut.txt")
        assert isinstance(again, Result) and not again.complete
        assert [row.size_bytes for row in again.rows] == sizes


def test_doubts_are_findings() -> None:
    devices = [RankDevice(rank, 1, f"h{rank // 2}", rank, "", "CPU") for rank in range(4)]
    hosts = printed(make_result(world=World(devices, 4)))
    again = read_table.read(hosts)
    assert [finding.id for finding in again.findings] == [LOG_RANKS]
    assert [device.host for device in again.world.devices] == ["host 1"] * 2 + ["host 2"] * 2
    twice = read_table.read(hosts + "\n" + printed(make_result()))
    assert LOG_TABLES in {finding.id for finding in twice.findings}
    assert read_table.read(hosts + "\n" + printed(make_result()), number=2).world.ranks == 2
    with pytest.raises(UsageError, match="--table 3: there is 1 table"):
        read_table.read(hosts, number=3)
    broken = hosts.replace("       8 B            2", "       8 B            ?")
    assert [f.id for f in read_table.read(broken).findings] == [LOG_ROWS, LOG_RANKS]


def test_without_its_first_lines_the_caller_names_the_collective() -> None:
    titles = printed(make_result()).partition("\n\n")[2]
    with pytest.raises(UsageError, match="does not name the collective"):
        read(titles.encode(), "x")
    again = read(titles.encode(), "x", "all_gather")
    assert isinstance(again, Result) and len(again.rows) == 2 and not again.world.devices
    with pytest.raises(UsageError, match="it is of all_reduce"):
        read(printed(make_result()).encode(), "x", "broadcast")


def test_the_golden_table_is_read_back(recorded: Path, golden: Callable[[str, str], None]) -> None:
    file = recorded.parent / "golden" / "table_all_reduce.txt"
    again = read(file.read_bytes(), file.name)
    assert isinstance(again, Result)
    assert measured_lines(printed(again, COLUMNS)) == measured_lines(file.read_text())
    assert msgspec.structs.replace(again, rows=[]).spec.iters == 20
