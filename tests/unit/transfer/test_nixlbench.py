"""nixlbench's output is read in the forms of all its versions, also cut off and labeled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transfer_outputs import configuration, nixlbench, row, table

from busbw.core.errors import UsageError
from busbw.transfer import nixlbench as reader
from busbw.transfer import read, text

MIB = 1 << 20
# As cloudai's reader of these tables has them (NVIDIA/cloudai, pull request 550: 2 x H100, UCX).
LEGACY = """\
Block Size (B)      Batch Size     Avg Lat. (us)  B/W (MiB/Sec)  B/W (GiB/Sec)  B/W (GB/Sec)
--------------------------------------------------------------------------------
4096                1              6.51488        599.589        0.585536       0.628714
1048576             1              30.3075        32995.1        32.2218        34.5979
8388608             1              182.206        43906.3        42.8772        46.0391
"""
# Two rows of ai-dynamo/nixl, pull request 2276: A3 Mega, 4 threads.
SINCE_1_1 = """\
4096                1              0.027182       602.8          492.5          1440.0         103.6          338.0          397.6          3844.0
16384               1              0.105219       622.9          852.0          3070.0         142.2          922.0          367.0          9797.0
"""
SEVERAL_PAIRS = """\
Block Size (B)      Batch Size     B/W (GB/Sec)   Aggregate B/W (GB/Sec)   Network Util (%)    Avg Lat. (us)  Avg Prep (us)  P99 Prep (us)  Avg Post (us)  P99 Post (us)  Avg Tx (us)    P99 Tx (us)
65536               16             40.000000      320.000000               80.000000           1.6            11.0           11.0           0.8            1.0            25.3           31.0
"""


def test_a_row_has_size_batch_rate_and_times() -> None:
    report = reader.read(configuration() + table([row(MIB, 8, 45.5, 23.1, 184.5)]))
    (only,) = report.rows
    assert (only.size_bytes, only.batch, only.rate) == (MIB, 8, 45.5e9)
    assert only.time_s == pytest.approx(23.1e-6)
    assert only.request_s == pytest.approx(184.5e-6)
    assert only.p99_s == pytest.approx(221.4e-6)


def test_the_configuration_says_what_was_measured() -> None:
    """The second --num_threads is that of a GPU kernel."""
    options = {"device_list": "mlx5_0,mlx5_1", "num_initiator_dev": 2, "pipeline_depth": 4}
    (run,) = reader.read(nixlbench(4, 47, threads=4, **options)).runs
    assert (run.backend, run.operation, run.source, run.target) == ("UCX", "WRITE", "VRAM", "VRAM")
    assert (run.scheme, run.threads, run.depth, run.devices) == ("pairwise SG", 4, 4, 2)
    assert run.nics == ["mlx5_0", "mlx5_1"]


def test_the_table_before_0_5_1_has_other_columns() -> None:
    report = reader.read(LEGACY)
    assert [each.rate for each in report.rows] == [0.628714e9, 34.5979e9, 46.0391e9]
    assert report.rows[-1].time_s == pytest.approx(182.206e-6)
    assert report.rows[-1].request_s is None
    for each in report.rows:  # its GB are 10^9 bytes
        assert each.size_bytes / each.time_s == pytest.approx(each.rate, rel=1e-4)


def test_rates_of_all_pairs_are_beside_those_of_one() -> None:
    (only,) = reader.read(SEVERAL_PAIRS).rows
    assert (only.rate, only.total_rate) == (40e9, 320e9)
    assert only.p99_s == pytest.approx(31e-6)


def test_the_time_is_that_of_a_thread_in_all_versions() -> None:
    """Before 1.1 it was divided by the number of threads."""
    titles = table([])
    new = reader.read(configuration(num_threads=4) + titles + SINCE_1_1)
    assert new.rows[0].time_s == pytest.approx(602.8e-6)
    old = reader.read(configuration(num_threads=4) + titles + SINCE_1_1.replace("602.8 ", "150.7 "))
    assert old.rows[0].time_s == pytest.approx(602.8e-6)


def test_titles_with_single_spaces_are_read() -> None:
    joined = "\n".join(" ".join(line.split()) for line in SEVERAL_PAIRS.splitlines()) + "\n"
    assert reader.read(joined).rows == reader.read(SEVERAL_PAIRS).rows


@pytest.mark.parametrize("old", [False, True])
def test_threads_follow_from_rate_and_time_where_the_configuration_is_left_out(old: bool) -> None:
    """People paste the table alone. With the rate of several threads a request seems to take longer
    than the bandwidth allows.
    """
    rows = [row(4096, 1, 0.027, 606.8, 400.0), row(8192, 1, 0.051, 642.5, 400.0)]
    output = LEGACY if old else table(rows)
    report = read.read(output.encode(), "pasted")
    assert report is not None
    assert [run.threads for run in report.runs] == [None if old else 4]
    assert not [found for found in report.findings if found.id == "transfer.figures"]


@pytest.mark.parametrize(
    "label", ["[2026-07-28T10:17:56.782Z] ", "0: ", "nid001 | ", "[1,0]<stdout>:", "w-0|"]
)
def test_labels_of_launchers_stand_before_lines(label: str) -> None:
    output = nixlbench(4, 47)
    labeled = "".join(label + line for line in output.splitlines(keepends=True))
    assert reader.read(labeled).rows == reader.read(output).rows
    assert reader.read(labeled).runs == reader.read(output).runs


def test_each_table_of_a_file_is_a_run() -> None:
    report = reader.read(nixlbench(4, 47) + "noise\n" + nixlbench(9, 20, op_type="READ"))
    assert [run.operation for run in report.runs] == ["WRITE", "READ"]
    assert len(report.rows_of(0)) == len(report.rows_of(1)) == 15


def test_a_figure_that_is_cut_is_not_taken() -> None:
    output = configuration() + table([row(MIB, 1, 40.0, 26.3, 25.5), row(2 * MIB, 1, 43, 48, 47.8)])
    whole = output.rstrip()
    assert len(reader.read(whole).rows) == 2
    for end in range(len(whole) - 50, len(whole)):
        report = reader.read(whole[:end])
        assert [each.size_bytes for each in report.rows] == [MIB], whole[:end][-20:]


def test_a_table_without_its_largest_block_did_not_end() -> None:
    assert reader.read(nixlbench(4, 47)).unended == 0
    assert reader.read(nixlbench(4, 47, blocks=[4096, 8192])).unended == 1


@pytest.mark.parametrize("figure", ["nan", "-nan", "inf", "-1.0", "1e999", "9" * 400])
def test_a_row_of_figures_that_are_none_is_left_out(figure: str) -> None:
    bad = row(2 * MIB, 1, 43.0, 48.6, 47.8).replace("43.000000", figure)
    report = reader.read(configuration() + table([row(MIB, 1, 40.0, 26.3, 25.5), bad]))
    assert ([each.size_bytes for each in report.rows], report.skipped) == ([MIB], 1)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (configuration(), "without a row"),
        (configuration() + table([]), "without a row"),
        (
            configuration() + table([row(MIB, 1, 0, 0, 0)]),
            ": 1 row, cut off or without finite figures",
        ),
    ],
)
def test_output_without_rows_is_an_error(output: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"n.txt: output of nixlbench.*{said}") as caught:
        read.read(output.encode(), "n.txt")
    assert caught.value.hint


@pytest.mark.parametrize("data", [b"", b"nixlbench", b'{"a": "Block Size (B) B/W (GB/Sec)"}'])
def test_another_file_is_none_of_these(data: bytes) -> None:
    assert read.read(data, "f") is None


PIECES = st.sampled_from(
    ["nan", "9" * 5000, "-1", "1e999", "0", "\n", "\0", "(us)", "Block Size (B)", "(--a=b): ", " "]
)


@given(
    cut=st.floats(0, 1),
    edits=st.lists(st.tuples(st.floats(0, 1), PIECES, st.integers(0, 40)), max_size=6),
)
def test_no_output_makes_it_fail(cut: float, edits: list[tuple[float, str, int]]) -> None:
    output = nixlbench(190, 12, batch=4, threads=2) + LEGACY
    for where, piece, length in edits:
        at = int(where * len(output))
        output = output[:at] + piece + output[at + length :]
    output = output[: int(cut * len(output))]
    try:
        report = read.read(output.encode(), "n.txt")
    except UsageError as error:
        assert error.hint
    else:
        assert report is None or text.render(report, 80)
