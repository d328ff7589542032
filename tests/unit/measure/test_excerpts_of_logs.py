"""Parts of logs, as people paste them: without the lines around a table, with those of another run,
or changed by what they were copied through.
"""

import json
from pathlib import Path

import pytest
from printed_tables import DEVICES, EIGHT, MODERN, ids, modern, old

from busbw.cli.file_kinds import read_bytes
from busbw.cli.main import guarded
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict
from busbw.measure.formats import read_nccl_tests_text

read = read_nccl_tests_text.read
HEADER = (
    "# nThread 1 nGpus 8 minBytes 8 maxBytes {} step: 2(factor) warmup iters: 5 iters: 20"
    " validation: 1\n"
)


def test_rows_that_are_missing_are_noticed_by_the_average() -> None:
    lines = modern("all_reduce", 8).text.splitlines(keepends=True)
    result = read("".join([*lines[:3], "...\n", *lines[4:]]))
    assert (ids(result), result.complete) == (["log.collective", "log.average"], True)
    assert "mean busbw of 6 figures" in result.findings[1].evidence


def test_ranks_that_are_not_listed_are_unknown() -> None:
    table = modern("all_reduce", 72).text
    result = read(DEVICES.format(71, 7) + table)
    assert (result.world.devices, ids(result)) == ([], ["log.collective", "log.ranks"])
    assert result.findings[1].message.startswith("the log lists 1 of 72 ranks")
    other = read(EIGHT + table)
    assert (
        other.world.ranks,
        [finding.message for finding in other.findings if finding.id == "log.ranks"],
    ) == (0, ["the log lists 8 ranks, and busbw / algbw is that of all_reduce with 72"])
    header = (
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20"
        " validation: 1\n"
    )
    devices = "".join(DEVICES.format(rank, 800) for rank in range(4))
    assert (
        "the log lists 4 of 8 ranks"
        in read(header + devices + modern("all_reduce", 8).text).findings[1].message
    )


def test_processes_that_ran_separately() -> None:
    separate_hosts = DEVICES.format(0, 800) + DEVICES.format(0, 801).replace("node1", "node2")
    result = read(
        "# Collective test starting: all_reduce_perf\n"
        + separate_hosts
        + modern("all_reduce", 1).text
    )
    assert (result.world.ranks, ids(result)) == (0, ["log.ranks"])
    assert result.findings[0].message.startswith("2 processes call themselves rank 0")


def run_of(collective: str, *, rows: bool = True, after: str = "") -> str:
    """The output of nccl-tests for a collective; without rows that of one that stands still."""
    start = f"# Collective test starting: {collective}_perf\n"
    table = modern(collective, 8).text
    return start + HEADER.format(8) + EIGHT + (table if rows else "") + after


TITLES = MODERN + "\n"
FAILED = "node1: Test NCCL failure common.cu:401 'remote process exited / '\n"


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (
            run_of("alltoall", rows=False, after=TITLES + FAILED),
            "alltoall_perf in this log failed before its first row: node1: Test NCCL failure",
        ),
        (
            run_of("alltoall", rows=False, after=FAILED),
            "alltoall_perf in this log failed before its first row: node1: Test NCCL failure",
        ),
        (
            run_of("alltoall", rows=False, after=TITLES),
            "alltoall_perf in this log has no row: it did not end, or its rows are missing",
        ),
    ],
    ids=["failed", "failed at its start", "stands still"],
)
def test_a_run_without_a_row_is_not_lost_beside_another(place, broken, said) -> None:
    whole = run_of("all_reduce")
    result = read(broken + whole if place == "before" else whole + broken)
    (found,) = [finding for finding in result.findings if finding.verdict is not Verdict.PASS]
    assert found.message.startswith(said)
    assert (result.spec.collective, result.world.ranks) == ("all_reduce", 8)


def test_a_run_that_stands_still_in_its_start_is_not_lost() -> None:
    result = read(run_of("all_reduce") + run_of("alltoall", rows=False))
    assert "alltoall_perf in this log has no row" in result.findings[-1].message


def test_rows_behind_an_average_are_of_another_run() -> None:
    """People keep the rows and averages of a loop over settings."""
    table = modern("all_reduce", 8)
    kept = "".join(
        f"### NCCL_PROTO={proto}\n{table.rows[-1]}\n# Avg bus bandwidth    : 1{number} \n"
        for number, proto in enumerate(("LL", "LL128", "Simple"))
    )
    result = read(kept)
    (several,) = [finding for finding in result.findings if finding.id == "log.tables"]
    assert several.message == "the log holds 3 tables; this is the first"
    assert "Avg bus bandwidth: 10" in str(result.findings)
    last = read(kept, table=3)
    assert len(last.rows) == 1 and "Avg bus bandwidth: 12" in str(last.findings)


def test_a_failed_run_is_reported() -> None:
    end = " .. node1 pid 12345: Test failure common.cu:1126\n"
    result = read(modern("all_reduce", 8).text.replace(" \n#\n", " FAILED\n#\n") + end)
    finding = result.findings[-1]
    assert (finding.id, finding.verdict) == ("log.failed", Verdict.FAIL)
    assert (finding.message, finding.evidence) == (
        "the run failed: its average is below 0.9 x NCCL_TESTS_MIN_BW",
        "node1 pid 12345: Test failure common.cu:1126",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            (
                f"{MODERN}\n"
                f" 8 2 float sum -1 NaNbad 2.0 3.0 0 1.0 2.0 3.0 0\n"
                f"# Avg bus bandwidth  "
                "  : 3\n"
            ),
            "1 line of its table cannot be read",
        ),
        ("16 nodes:\nAvg bus bandwidth    : 21.1951\n", "an average of 21.1951 GB/s, and no row"),
        (MODERN + "\n", "no row of a table"),
    ],
)
def test_text_without_rows_is_refused_with_its_contents(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(text)


def test_the_average_of_an_earlier_run_does_not_end_the_table() -> None:
    log = EIGHT + modern("all_reduce", 8).text
    for before in ("# Avg bus bandwidth    : 142.735\n", "# Out of bounds values : 0 OK\n"):
        result = read(before + log)
        assert (len(result.rows), result.world.ranks, result.complete) == (4, 8, True)


def test_an_excerpt_ended_unless_it_says_otherwise() -> None:
    text = modern("all_reduce", 8).text
    table = text[: text.index("# Out of bounds")]
    largest = read(table).rows[-1].size_bytes
    assert read(table).complete
    assert read(HEADER.format(largest) + table).complete
    assert not read(HEADER.format(2 * largest) + table).complete
    assert read(HEADER.format(2 * largest) + table + "# Out of bounds values : 0 OK\n").complete
    assert not read(table + table.splitlines()[3][:60] + "\n").complete, "a row that was cut"
    failure = "node1: Test NCCL failure common.cu:1005 'unhandled system error / x'\n"
    for end in (failure, " .. node1 pid 12345: Test failure common.cu:1126\n"):
        assert not read(HEADER.format(largest) + table + end).complete, "it failed after its rows"


def test_the_first_alltoall_had_wrong_data_in_place() -> None:
    text = old("alltoall", 16).text
    rows = [line for line in text.splitlines() if line.strip()[:1].isdigit()]
    for row in rows:
        text = text.replace(row, row.rsplit(maxsplit=1)[0] + "  1e+00")
    result = read(text)
    assert result.spec.collective == "alltoall"
    assert ids(result) == ["log.collective", "log.figures"]
    assert (result.findings[1].verdict, result.findings[1].evidence) == (
        Verdict.WARN,
        "in place only",
    )


def test_a_table_whose_first_side_is_in_place() -> None:
    lines = modern("all_reduce", 8).text.splitlines(keepends=True)
    above = "#                                 in-place                       out-of-place\n"
    turned = read("".join([above, *lines])).rows[-1]
    row = read("".join(lines)).rows[-1]
    assert (turned.out_of_place, turned.in_place) == (row.in_place, row.out_of_place)
    assert read("".join(["       in-place\n", *lines])).rows[-1] == row, "a line that was cut"


def test_a_line_of_another_table_is_no_row() -> None:
    table = modern("all_reduce", 8).text
    without_end = table[: table.index("# Avg")]
    simple = (
        "#  size  time  algbw  busbw\n#  (B)  (us)  (GB/s)  (GB/s)\n  1048576  52.4  20.0  35.0\n"
    )
    assert len(read(without_end + "   D\\D     0      1      2      3\n").rows) == 4
    assert len(read(simple + "   D\\D     0      1      2      3\n", "all_reduce").rows) == 1


def test_devices_whose_host_was_removed() -> None:
    log = HEADER.format(8) + EIGHT.replace("node1", "     ") + modern("all_reduce", 8).text
    assert read(log).world.ranks == 8


@pytest.mark.parametrize(
    "changed",
    [
        lambda log: log.replace(" ", "\u00a0").encode(),
        lambda log: log.replace("  ", "\t").encode(),
        lambda log: log.replace("\n", "\r\n").encode("utf-16"),
        lambda log: (
            "".join(
                json.dumps({"log": line, "stream": "stdout", "time": "2026-01-01T00:00:00Z"}) + "\n"
                for line in log.splitlines(keepends=True)
            ).encode()
            + b'{"log":"# cut off'
        ),
        lambda log: "\n".join(json.dumps({"log": line}) for line in log.splitlines()).encode(),
    ],
    ids=["spaces of a web page", "tabs", "UTF-16", "Docker", "a collector of logs"],
)
def test_what_logs_are_copied_through(tmp_path: Path, changed) -> None:
    log = HEADER.format(8) + EIGHT + modern("all_reduce", 8).text
    path = tmp_path / "log"
    path.write_bytes(changed(log))
    assert read(read_bytes(str(path)).decode()) == read(log)


def test_a_sweep_that_breaks_off_has_nccls_reason(tmp_path: Path, capsys) -> None:
    log, table = tmp_path / "log", modern("all_reduce", 8)
    lost = "h1:7:9 [0] misc/somewhere.cc:49 NCCL WARN Cuda failure 700 'an illegal memory access'\n"
    log.write_text(HEADER.format(1 << 30) + "\n".join(table.titles + table.rows[:2]) + "\n" + lost)
    assert guarded(["show", "--wide", str(log)]) == 1
    assert "FAIL    NCCL failed on h1, GPU 0: CUDA failed: an illegal" in capsys.readouterr().out
    assert guarded(["compare", str(log), str(log)]) == 0
    assert f"warning: {log}: NCCL failed on h1, GPU 0" in capsys.readouterr().err
    log.write_text(HEADER.format(1 << 30) + table.text + lost)  # what NCCL did without
    assert guarded(["show", str(log)]) == 0


@pytest.mark.parametrize(
    ("name", "collective"), [("allg", "all_gather"), ("redsct", "reduce_scatter"), ("allr", None)]
)
def test_nccom_test_names_its_collective(name: str, collective: str | None) -> None:
    factor = 31 / 32 if collective else 62 / 32
    rows = [
        f"{size:10d} {size:10d} uint8 {size / 4e4:8.0f} {40.0:8.2f} {40.0 * factor:8.2f}"
        for size in (1 << 24, 1 << 25)
    ]
    title = "   size(B)    count(elems)     type    time(us)    algbw(GB/s)    busbw(GB/s)"
    log = "\n".join([f"$ nccom-test -r 32 -b 16MB -e 32MB {name}", title, *rows]) + "\n"
    result = read(log)
    assert result.spec.collective == (collective or "all_reduce")
    assert read(log.partition("\n")[2], name).spec == result.spec, "as --collective too"
    assert [finding for finding in result.findings if finding.verdict is not Verdict.PASS] == []
