"""ucx_perftest's output is read in the forms of all its versions: recorded ones of UCX 1.13, and
what others print.
"""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.transfer import read, text
from busbw.transfer import ucx_perftest as reader
from busbw.transfer.types import BANDWIDTH, LATENCY
from busbw.transfer.ucx_size import SizeRange, message_size

MIB = 1 << 20
SIZES = [4096, 65536, MIB, 4 * MIB]
# UCX 1.2 to 1.8: no stage, `latency` above all tests (rapidsai/ucx-py's debugging page).
UNTIL_1_8 = """\
+--------------+-----------------------------+---------------------+-----------------------+
|              |       latency (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |
+--------------+---------+---------+---------+----------+----------+-----------+-----------+
| # iterations | typical | average | overall |  average |  overall |   average |   overall |
+--------------+---------+---------+---------+----------+----------+-----------+-----------+
+------------------------------------------------------------------------------------------+
| API:          protocol layer                                                             |
| Test:         tag match bandwidth                                                        |
| Data layout:  (automatic)                                                                |
| Send memory:  cuda                                                                       |
| Recv memory:  cuda                                                                       |
| Message size: 100000000                                                                  |
+------------------------------------------------------------------------------------------+
             4     0.000  9204.800  9204.800   10360.61   10360.61         109         109
            10     0.000  9104.800  9104.800   10474.41   10474.41         110         110
"""
PROTOCOLS = """\
|                 2049..inf | zero-copy | 50% on rc_mlx5/mlx5_0:1/path0 and 50% on rc_mlx5/mlx5_2:1/path0 |
"""


@pytest.fixture
def outputs(recorded: Path) -> Path:
    return recorded / "ucx_perftest"


def rows_of(path: Path) -> list:
    return reader.read(path.read_text()).rows


@pytest.mark.parametrize("name", ["sizes.txt", "sizes_final_only.txt", "sizes.csv"])
def test_each_test_of_a_batch_is_a_row_of_its_own_size(outputs: Path, name: str) -> None:
    """The client prints no size, and the server only that of its command line."""
    server = (outputs / "server.txt").read_text().replace("1048576", "8      ")
    report = reader.read(server + (outputs / name).read_text())
    assert [row.size_bytes for row in report.rows] == SIZES
    assert (len(report.runs), report.skipped, report.unended) == (1, 0, 0)


def test_megabytes_are_of_two_to_the_twentieth(outputs: Path) -> None:
    last = rows_of(outputs / "sizes.txt")[-1]
    assert last.rate == pytest.approx(8045.08 * MIB)
    assert last.size_bytes / last.time_s == pytest.approx(last.rate, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "size", "rate"),
    [
        ("one.csv", MIB, 6822.67),
        ("final_only.txt", MIB, 7251.37),
        ("two_threads.txt", 65536, 719.83),
        ("numeric.txt", 64, 10.79),
    ],
)
def test_options_change_the_form_not_the_row(
    outputs: Path, name: str, size: int, rate: float
) -> None:
    (row,) = rows_of(outputs / name)
    assert (row.size_bytes, row.rate, row.derived) == (size, pytest.approx(rate * MIB), True)


@pytest.mark.parametrize("label", ["1795992345.814839 ", "[1,0]<stdout>:", "0: ", "[node1] "])
@pytest.mark.parametrize("name", ["sizes.txt", "two_threads.txt", "cut_off_two_threads.txt"])
def test_labels_of_launchers_stand_before_lines(outputs: Path, name: str, label: str) -> None:
    output = (outputs / name).read_text()
    labeled = "".join(label + line for line in output.splitlines(keepends=True))
    assert reader.read(labeled).rows == reader.read(output).rows


def test_thousands_may_be_separated(outputs: Path) -> None:
    output = (outputs / "numeric.txt").read_text()
    separated = output.replace(" 20000 ", "20,000 ").replace("176813 ", "176,813")
    assert separated != output
    assert reader.read(separated).rows == reader.read(output).rows


@pytest.mark.parametrize("name", ["server_and_client.txt", "loopback.txt"])
def test_the_box_of_the_server_belongs_to_the_row_wherever_it_stands(
    outputs: Path, name: str
) -> None:
    report = reader.read((outputs / name).read_text())
    (run,), (row,) = report.runs, report.rows
    assert (run.source, run.target, run.kind) == ("host", "host", BANDWIDTH)
    assert row.size_bytes in (262144, 65536)
    assert not row.derived


def test_a_box_of_another_size_is_not_that_of_the_row(outputs: Path) -> None:
    output = (outputs / "loopback.txt").read_text().replace("size: 65536", "size: 66000")
    (run,) = reader.read(output).runs
    assert run.source == ""


def test_a_test_of_latency_has_its_median(outputs: Path) -> None:
    output = (outputs / "latency.txt").read_text()
    (row,) = reader.read(output).rows
    assert (row.median_s, row.p99_s) == (pytest.approx(5.742e-6), None)
    assert reader.read(output).runs[0].kind == LATENCY
    (row,) = reader.read(output.replace("50.0%ile", "99.0%ile")).rows
    assert (row.median_s, row.p99_s) == (None, pytest.approx(5.742e-6))


def test_a_test_that_was_cut_off_has_its_last_progress(outputs: Path) -> None:
    """Of two threads that is the sum."""
    report = reader.read((outputs / "cut_off_two_threads.txt").read_text())
    (row,) = report.rows
    assert (row.size_bytes, report.unended, report.runs[0].threads) == (MIB, 1, 2)
    assert row.rate == pytest.approx((341.65 + 309.98) * MIB)


def test_no_part_of_a_row_is_taken_for_a_sum_of_threads(outputs: Path) -> None:
    """Rows of sizes.txt have 8 figures, those of a sum 4."""
    output = (outputs / "sizes.txt").read_text()
    for width in range(55, 101):
        wrapped = re.sub(rf"(?m)^(Final:.{{{width - 6}}})", r"\1\n", output)
        report = reader.read(wrapped)
        assert report.rows == [] and report.skipped >= 4, width
    for label in ("Mar 04 05:06:07 ", "     1\t", ""):
        labeled = "\n".join(label + line for line in output.splitlines())
        assert reader.read(labeled).rows == reader.read(output).rows, "without the last line's end"
    report = reader.read((outputs / "two_threads.txt").read_text().rstrip("\n"))
    assert (report.rows, report.skipped) == ([], 1), "the last figure may be cut"


def test_before_1_9_the_last_row_counts() -> None:
    (row,) = reader.read(UNTIL_1_8).rows
    assert (row.size_bytes, row.rate) == (100_000_000, pytest.approx(10474.41 * MIB))
    (run,) = reader.read(UNTIL_1_8).runs
    assert (run.kind, run.source) == (BANDWIDTH, "cuda")
    assert (row.median_s, reader.read(UNTIL_1_8).unended) == (None, 0)


def test_nics_are_those_that_the_protocols_name(outputs: Path) -> None:
    report = reader.read(PROTOCOLS + (outputs / "sizes.txt").read_text())
    assert report.runs[0].nics == ["mlx5_0", "mlx5_2"]


def test_the_test_is_named_by_the_command_or_the_batch(outputs: Path) -> None:
    output = (outputs / "final_only.txt").read_text()
    report = reader.read(f"$ ucx_perftest h2 -t ucp_put_bw -s 1M\n{output}")
    assert report.runs[0].operation == "ucp_put_bw"
    batch = (outputs / "sizes_final_only.txt").read_text().replace("      4096 ", "stream_bw ")
    assert [run.operation for run in reader.read(batch).runs] == ["stream_bw", ""]


def test_what_ends_within_a_row_has_no_half_figure(outputs: Path) -> None:
    output = (outputs / "two_threads.txt").read_text().rstrip()
    for end in range(len(output) - 40, len(output)):
        assert reader.read(output[:end]).rows == []
    output = (outputs / "one.csv").read_text().rstrip()
    whole = reader.read(output).rows
    for end in range(len(output) - 40, len(output)):
        assert reader.read(output[:end]).rows in ([], whole)


@pytest.mark.parametrize("name", ["server.txt", "latency.txt"])
def test_output_without_rows_is_an_error(outputs: Path, name: str) -> None:
    output = "".join((outputs / name).read_text().splitlines(keepends=True)[:5])
    with pytest.raises(UsageError, match=r"u.txt: output of ucx_perftest without a row") as caught:
        read.read(output.encode(), "u.txt")
    assert "client" in caught.value.hint


def test_a_log_with_a_table_of_nccl_tests_is_read_as_that(outputs: Path, recorded: Path) -> None:
    log = (recorded / "nccl_tests" / "all_reduce_2xH200_one_process.txt").read_bytes()
    assert read.program((outputs / "sizes.txt").read_bytes()) == "ucx_perftest"
    assert read.program(log + (outputs / "sizes.txt").read_bytes()) == ""


@given(
    size=st.one_of(
        st.integers(0, 30).map(lambda power: 1 << power),
        st.integers(1, 9).map(lambda power: 10**power),
    ),
    rate=st.floats(1e6, 1e11),
)
def test_a_round_size_follows_from_the_figures_as_printed(size: int, rate: float) -> None:
    """Where the figures have the digits for it."""
    time_us = size / rate * 1e6
    printed_rate, printed_us = round(rate / MIB, 2), round(time_us, 3)
    sizes = SizeRange.product(printed_rate, 0.005, printed_us, 0.0005, MIB * 1e-6)
    assert size in SizeRange(sizes.low * (1 - 1e-9), sizes.high * (1 + 1e-9))
    assert message_size(sizes) in (size, None)


PIECES = st.sampled_from(
    ["nan", "inf", "9" * 5000, "-1", "0", "\n", "\0", "|", "]", "[thread 9", "Final:", " ", ","]
)
RECORDED = Path(__file__).parents[2] / "recorded" / "ucx_perftest"
EVERY = "".join(path.read_text() for path in sorted(RECORDED.glob("[a-z]*.*")))


@given(
    start=st.floats(0, 1),
    edits=st.lists(st.tuples(st.floats(0, 1), PIECES, st.integers(0, 60)), max_size=6),
    length=st.integers(0, 3000),
)
def test_no_output_makes_it_fail(
    start: float, edits: list[tuple[float, str, int]], length: int
) -> None:
    at = int(start * len(EVERY))
    output = EVERY[at : at + length]
    for where, piece, replaced in edits:
        at = int(where * len(output))
        output = output[:at] + piece + output[at + replaced :]
    try:
        report = read.read(output.encode(), "u.txt")
    except UsageError as error:
        assert error.hint
    else:
        assert report is None or text.render(report, 80)
