"""Tables of every version that identify their collective are read without its name, under any
launcher's labels.
"""

import re
from collections.abc import Callable

import pytest
from printed_tables import EIGHT, MODERN, UNITS, ids, modern, old

from busbw.core.errors import UsageError
from busbw.core.finding import Verdict
from busbw.core.ran import NcclKernel
from busbw.core.result import Cell, Result
from busbw.measure.formats import log_lines, nccl_tests_text, read_nccl_tests_text
from busbw.report.registry import VIEWS

read = read_nccl_tests_text.read
NCCL_1 = """\
# Using devices
#   Rank  0 uses device  0 [0x0a] GeForce GTX 1080
#   Rank  1 uses device  1 [0x09] GeForce GTX 1080
#   Rank  2 uses device  2 [0x06] GeForce GTX 1080

#                                                 out-of-place                    in-place
#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res
    20000000      20000000    char     sum    3.250   6.15   8.21    0e+00    3.901   5.13   6.84    0e+00
    20000000       5000000     int    prod    3.221   6.21   8.28    0e+00    3.240   6.17   8.23    0e+00

 Out of bounds values : 2 FAILED
 Avg bus bandwidth    : 7.89 FAILED
"""


def cells(result: Result) -> list[Cell]:
    return [
        cell for row in result.rows for cell in (row.out_of_place, row.in_place) if cell is not None
    ]


@pytest.mark.parametrize("printed", [modern, old])
@pytest.mark.parametrize(
    "collective",
    ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv"],
)
def test_the_table_identifies_its_collective(
    printed: Callable[..., object], collective: str
) -> None:
    for ranks in (2, 8, 72):
        table = printed(collective, ranks)
        result = read(table.text)  # type: ignore[attr-defined]
        assert (result.spec.collective, ids(result), len(result.rows)) == (
            collective,
            ["log.collective"],
            4,
        )
        assert result.findings[0].verdict is Verdict.PASS
        assert result.average_busbw() / 1e9 == pytest.approx(table.average, abs=0.006)  # type: ignore[attr-defined]
        assert all(view.render(result) for view in VIEWS)


def test_hypercube_is_the_only_one_without_an_operator() -> None:
    assert read(modern("hypercube", 8).text).spec.collective == "hypercube"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (modern("gather", 8).text, ["gather", "scatter"]),
        (modern("all_gather", 8, checked=False).text, ["all_gather", "alltoall"]),
        (modern("all_reduce", 2, checked=False).text, ["all_reduce", "sendrecv"]),
        (modern("all_reduce", 1).text, ["all_reduce", "reduce_scatter"]),
    ],
)
def test_a_table_that_several_fit_is_refused_with_their_names(text: str, names: list[str]) -> None:
    with pytest.raises(UsageError, match=f"can be of {' or '.join(names)}") as caught:
        read(text)
    assert caught.value.hint == f"pass --collective {names[0]}, or one of {names[1]}"
    assert read(text, collective=names[1]).spec.collective == names[1]


def test_the_lines_of_devices_decide_between_two_ranks_and_more() -> None:
    table = modern("sendrecv", 8, checked=False).text
    assert read(EIGHT + table).spec.collective == "sendrecv"
    assert read(EIGHT + table).world.ranks == 8


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "all_gather",
            "its busbw / algbw is 1.7500, that of all_gather is (n-1)/n, 0.875 for 8 ranks",
        ),
        ("sendrecv", "its busbw / algbw is 1.7500, that of sendrecv is 1"),
        ("broadcast", "busbw / algbw is 1.7500"),
    ],
)
def test_a_collective_that_the_table_contradicts_is_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(EIGHT + modern("all_reduce", 8).text, collective=name)
    assert f"--collective {name} contradicts the table: " in caught.value.message
    assert message in caught.value.message
    assert caught.value.hint == "pass --collective all_reduce"


@pytest.mark.parametrize(
    ("table", "name", "message"),
    [
        (modern("broadcast", 4), "reduce", "its rows have no operator, those of reduce have one"),
        (
            modern("reduce", 4),
            "broadcast",
            "its rows have the operator sum, those of broadcast have none",
        ),
        (modern("reduce", 4), "sendrecv", "its rows have a root, those of sendrecv have none"),
        (
            modern("all_gather", 4),
            "all_reduce",
            "its busbw / algbw is 0.7500, that of all_reduce is 2(n-1)/n, 1.5 for 4 ranks",
        ),
    ],
)
def test_operators_and_roots_contradict_too(table: object, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        read(table.text, collective=name)  # type: ignore[attr-defined]


def test_a_name_in_the_log_that_its_table_contradicts_is_doubted() -> None:
    result = read("# Collective test starting: all_gather_perf\n" + modern("all_reduce", 4).text)
    assert (result.spec.collective, ids(result)) == ("all_gather", ["log.figures"])
    assert "that of all_gather is (n-1)/n, 0.5 to 1" in result.findings[0].evidence


def stamped(number: int) -> str:
    return f"2026-01-16T15:40:{number % 60:02d}.{number * 7919 % 1000000000:09d}Z "


LABELS: dict[str, Callable[[int], str]] = {
    "Open MPI, indented": lambda number: "    [1,0]<stdout>:",
    "Open MPI 5, tag-detailed": lambda number: "[prterun-node1-4321@1,0][node1:5678]<stdout>: ",
    "Open MPI 5, tag-fullname and timestamp": lambda number: (
        f"Fri Jan 16 15:40:{number % 60:02d} 2026<prterun-node1-4321@1,0>[stdout]: "
    ),
    "Open MPI 5, XML": lambda number: '<stdout rank="0">',
    "Intel MPI": lambda number: "[0] ",
    "srun": lambda number: " 0: ",
    "pdsh": lambda number: "node1: ",
    "kubectl --prefix --timestamps": lambda number: (
        f"[pod/nccl-launcher-x7k2p/nccl] {stamped(number)}"
    ),
    "docker compose": lambda number: "nccl-1  | ",
    "torchrun": lambda number: "[default0]:",
    "a quotation": lambda number: "> ",
    "a table": lambda number: "| ",
    "logging": lambda number: f"2026-01-16 15:40:{number % 60:02d},{number % 1000:03d} - INFO - ",
    "journald": lambda number: f"Jan 16 15:40:{number % 60:02d} node1 nccl[812]: ",
    "colors": lambda number: "\x1b[36mnode1 |\x1b[0m ",
}


@pytest.mark.parametrize("name", LABELS)
def test_lines_with_a_label_are_read_as_without(name: str) -> None:
    noise = "node1:1386:1390 [1] NCCL INFO Connected all rings\n"
    table = modern("all_reduce", 8).text
    cut = table.index("float     sum", table.index("float     sum") + 1) + 20
    head = (
        "# nThread 1 nGpus 1 minBytes 1024 maxBytes 1073741824 step: 32(factor) warmup iters: 5"
        " iters: 20 agg iters: 1 validation: 1\n"
    )
    plain = head + EIGHT + table
    cut += len(head + EIGHT)
    noisy = plain[:cut] + noise + plain[cut:]
    labelled = "".join(
        LABELS[name](number) + line for number, line in enumerate(noisy.splitlines(keepends=True))
    )
    result = read(labelled)
    assert result == read(plain)
    assert (len(result.rows), result.world.ranks, result.spec.iters, result.complete) == (
        4,
        8,
        20,
        True,
    )


@pytest.mark.parametrize(
    ("begin", "end"),
    [("| ", " |"), ("`", "`"), ("<stdout>", "</stdout>"), ("", "   |"), ("", "\r")],
)
def test_lines_are_read_without_the_text_around_them(begin: str, end: str) -> None:
    plain = EIGHT + modern("all_reduce", 8).text
    assert read("".join(f"{begin}{line}{end}\n" for line in plain.splitlines())) == read(plain)


@pytest.mark.parametrize("label", ["[0]", "[1,0]<stdout>:"])
@pytest.mark.parametrize("head", [EIGHT, ""])
def test_a_label_before_each_part_of_a_row_is_left_out(label: str, head: str) -> None:
    plain = head + modern("all_reduce", 8).text
    parts = re.sub(
        r"(?m)^( +\d+ +\d+ +float .*? -1)( .*? \d)( .*)$", rf"\1{label}\2{label}\3", plain
    )
    assert parts.count(label) == 8
    labelled = "".join(f"{label}{line}" for line in parts.splitlines(keepends=True))
    assert read(labelled) == read(plain)
    rows = [line for line in labelled.splitlines() if "float" in line]
    assert len(read("\n".join(rows)).rows) == 4


def test_a_label_does_not_cut_names_of_other_hosts() -> None:
    text = "node1: " + MODERN + "\nnode12: x\nnode1:7:7 [0] NCCL INFO y\nnode2: z\n"
    assert log_lines.own_lines(text)[1:] == ["x", "z"]


def test_the_first_lines_of_later_releases() -> None:
    table = modern("all_reduce", 8).text
    for first, tool, versions, nccl in (
        (
            "# nccl-tests version 2.20.0 (b4d5bee) nccl-headers=23102 nccl-library=23007",
            "nccl-tests 2.20.0",
            {"nccl-tests": "2.20.0", "nccl-tests-commit": "b4d5bee", "nccl-headers": "23102"},
            23007,
        ),
        (
            "# nccl-tests version 2.20.0 (b4d5bee-dirty) nccl-headers=23102 nccl-library=23102",
            "nccl-tests 2.20.0",
            {"nccl-tests": "2.20.0", "nccl-tests-commit": "b4d5bee-dirty"},
            23102,
        ),
        (
            "# nccl-tests version 2.20.0 (unknown) nccl-headers=23102 nccl-library=23102",
            "nccl-tests 2.20.0",
            {"nccl-tests": "2.20.0", "nccl-tests-commit": "unknown"},
            23102,
        ),
        (
            "# rccl-tests version 2.17.9-develop:2596ca5f71 rccl-headers=22707 rccl-library=22707",
            "rccl-tests 2.17.9-develop:2596ca5f71",
            {"rccl-tests": "2.17.9-develop:2596ca5f71"},
            22707,
        ),
        (
            (
                "rccl-tests: Version develop:33cc4df\n"
                "RCCL version : 2.27.7-develop:29e1567\n"
                "HIP version  : 7.0.5"
            ),
            "rccl-tests develop:33cc4df",
            {"rccl-tests": "develop:33cc4df"},
            22707,
        ),
        ("# rccl-tests version 2.18.3", "rccl-tests 2.18.3", {"rccl-tests": "2.18.3"}, 0),
    ):
        result = read(f"{first}\n# Collective test starting: all_reduce_perf\n{table}")
        assert (result.tool, result.library.versions, result.library.nccl) == (tool, versions, nccl)
        if first.startswith("# nccl-tests"):
            assert nccl_tests_text.header(result).startswith(f"{first}\n")


def test_nccl_1_prints_milliseconds_and_no_units() -> None:
    result = read(NCCL_1)
    assert (result.spec.collective, result.world.ranks, result.spec.op, result.spec.datatype) == (
        "all_reduce",
        3,
        "all",
        "all",
    )
    assert [cell.time_s for cell in cells(result)] == pytest.approx(
        [3.25e-3, 3.901e-3, 3.221e-3, 3.24e-3]
    )
    assert (result.out_of_bounds, result.wrong()) == (2, True)
    assert [(finding.id, finding.verdict.value) for finding in result.findings] == [
        ("log.collective", "pass"),
        ("log.failed", "fail"),
    ]
    assert read("./build/all_reduce_test 20000000\n" + NCCL_1).program == "all_reduce_test"


def test_times_that_do_not_agree_with_bandwidths_are_named() -> None:
    text = modern("all_reduce", 4).text.replace("(us)", "(ms)")
    result = read(text)
    assert ids(result) == ["log.collective", "log.figures"]
    assert "size / algbw is 0.001 times the time" in result.findings[1].message


def test_units_behind_the_titles() -> None:
    titles = "    size(B)    count(elems)    type    time:avg(ms)    algbw(MB/s)    busbw(MB/s)\n"
    result = read(
        titles + "    1048576    262144    fp32    0.5    2097.15    3932.16\nAvg bus"
        " bandwidth:\t3.93216GB/s\n"
    )
    assert (result.spec.collective, result.rows[0].dtype, cells(result)[0].time_s) == (
        "all_reduce",
        "float",
        0.0005,
    )
    assert (cells(result)[0].busbw, result.complete) == (pytest.approx(3.93216e9), True)


def test_sizes_with_separators_and_no_counts() -> None:
    text = (
        "$ ./build/all_reduce_perf -b 64k -e 4M -f 64 -g 8\n"
        "[...]\n"
        "    size    time   algbw   busbw\n"
        "     (B)    (us)  (GB/s)  (GB/s)\n"
    )
    result = read(text + "  65_536   46.80    1.40    2.45\n4_194_304  101.5   41.33   72.33\n")
    assert [(row.size_bytes, row.dtype, row.iters) for row in result.rows] == [
        (65536, "", 0),
        (4194304, "", 0),
    ]
    table = next(view for view in VIEWS if view.name == "table").render(result)
    assert "64 KiB to 4 MiB, factor 64; busbw" in table
    assert re.search(r"64 KiB +- +46.80 us", table)


def test_the_column_of_iterations() -> None:
    titles = MODERN.replace("busbw #wrong     time", "busbw  #wrong     time") + "  #iters"
    row = modern("all_reduce", 8).rows[3]
    result = read(f"{titles}\n{UNITS}\n{row}      37\n")
    assert [row.iters for row in result.rows] == [37]
    assert cells(result) == cells(read(f"{MODERN}\n{row}\n"))


@pytest.mark.parametrize(
    ("values", "kernel"),
    [
        ("Coll  RING  LL  2", NcclKernel("Ring", "LL", 2)),
        ("Coll  NVLS_TREE  SIMPLE  N/A", NcclKernel("NVLSTree", "Simple")),
        ("N/A " * 4, None),
    ],
)
def test_the_columns_of_tuning(values: str, kernel: NcclKernel | None) -> None:
    titles = f"{MODERN}  implementation  algo  proto  #channels"
    row = modern("all_reduce", 8).rows[3]
    result = read(f"{titles}\n{UNITS}\n{row}  {values}\n")
    assert [row.ran for row in result.rows] == [kernel]
    assert cells(result) == cells(read(f"{MODERN}\n{row}\n"))


def test_one_side_in_place() -> None:
    over = "#                                                                in-place\n"
    titles = (
        "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    )
    row = "     1048576        262144     float     sum      -1    41.83   25.07   43.87      0\n"
    result = read(over + titles + row)
    assert (result.rows[0].out_of_place, cells(result)[0].busbw) == (None, 43.87e9)
    assert read(titles + row).rows[0].in_place is None
    wrapped = over.replace("#", "#                   out-of-place\n", 1) + titles
    assert read(wrapped + row).rows[0].in_place is None, "a mail client wrapped the lines"


def test_without_a_header_nothing_is_invented() -> None:
    result = read(modern("all_reduce", 8).text)
    text = next(view for view in VIEWS if view.name == "nccl-tests").render(result)
    assert not re.search("nThread|version|Rank", text)
    assert [row.size_bytes for row in read(text).rows] == [row.size_bytes for row in result.rows]


def test_rows_that_contradict_each_other_name_no_collective() -> None:
    rows = modern("all_reduce", 8).rows[:2] + modern("all_reduce", 3).rows[2:]
    text = "\n".join([MODERN, UNITS, *rows]) + "\n"
    with pytest.raises(UsageError, match="it does not name the collective"):
        read(text)
    assert ids(read(text, collective="all_reduce")) == ["log.figures"]
