"""Any file with a result is recognized by its contents; one without is refused with a description
of them.
"""

import contextlib
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from damaged_results import damaged
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.core.finding import LOG_FIGURES, Verdict
from busbw.core.result import Cell, Ideal, Result
from busbw.measure.formats import nccl_tests_json
from busbw.report import results
from busbw.report.read import read
from busbw.report.registry import VIEWS, view

Make = Callable[..., Result]
REAL = "nccl_tests/all_reduce_2xH200_one_process.json"


def test_each_format_is_recognised(make: Make) -> None:
    result = make()
    assert read(results.render(result).encode(), "a") == result
    for text in (nccl_tests_json.render(result), view("nccl-tests").render(result)):
        reread = read(text.encode(), "a")
        assert [row.size_bytes for row in reread.rows] == [8, 1048576]
        assert reread.spec.collective == "all_reduce"
        assert reread.complete


@pytest.mark.parametrize("keys", [("bus_bw",), ("alg_bw", "bus_bw")])
def test_figures_that_contradict_each_other_are_a_failed_log(
    keys: tuple[str, ...], recorded: Path
) -> None:
    document = json.loads((recorded / REAL).read_text())
    for row in document["results"]:
        for key in keys:
            row["in_place"][key] = str(50 * float(row["in_place"][key]))
            row["out_of_place"][key] = str(50 * float(row["out_of_place"][key]))
    (finding,) = read(json.dumps(document).encode(), "run.json").findings
    assert (finding.id, finding.verdict) == (LOG_FIGURES, Verdict.FAIL)


def test_a_busbw_that_does_not_follow_from_algbw_is_refused(make: Make) -> None:
    result = make()
    result.rows[-1].out_of_place.busbw *= 50  # type: ignore[union-attr]
    with pytest.raises(UsageError, match=r"a busbw of .* GB/s, which by its algbw is"):
        read(results.render(result).encode(), "run.json")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b" \n", "run.log: the file is empty"),
        (
            b"hello\nworld\n",
            'run.log: nccl-tests text: no row of a table in it; it begins with "hello"',
        ),
        (b'{"a": [1]}', "busbw does not know; its keys are a"),
        (b"{}", "busbw does not know; an empty object"),
        (b" [1, 2]\n", "a JSON list that busbw does not know"),
        (b"[1,0]<stdout>: hello\n", "nccl-tests text: no row of a table"),
        (
            b"{bad json}",
            "JSON: Expecting property name enclosed in double quotes at line 1, column 2",
        ),
        (
            b'{"schema": "busbw.result/9"}',
            "the schema is 'busbw.result/9', this busbw reads busbw.result/1",
        ),
        (b'{"tool": 1, "schema": "busbw.result/9"}', "the schema is 'busbw.result/9'"),
        (b'{"schema": "busbw.result/1", "tool": 3}', "Expected `str`, got `int` - at `$.tool`"),
        (b"\x80\x81\x00", "a binary file"),
        (b'{"schema": "busbw.result/1", "tool": "\xff"}', "invalid start byte"),
        (b'{"schema": "busbw.result/1", "x": ' + b'{"a":' * 100_000, "recursion"),
        (b'{"x":' * 100_000, "recursion"),
        (b'{"x": ' + b"9" * 5000 + b"}", "JSON: "),
    ],
)
def test_anything_else_is_refused_with_source_and_hint(data: bytes, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(data, "run.log")
    assert caught.value.message.startswith("run.log: ")
    assert message in caught.value.message
    assert caught.value.hint


def test_a_collective_that_busbw_does_not_know_is_refused(make: Make) -> None:
    document = results.render(make()).replace(
        '"collective": "all_reduce"', '"collective": "all_redcue"'
    )
    with pytest.raises(UsageError, match=r"r\.json: .*spec\.collective is 'all_redcue'") as caught:
        read(document.encode(), "r.json")
    assert "all_reduce" in caught.value.hint


@pytest.mark.parametrize("render", [results.render, nccl_tests_json.render])
def test_a_row_without_figures_is_refused(make: Make, render: Callable[[Result], str]) -> None:
    result = make()
    result.rows[1].out_of_place = result.rows[1].in_place = None
    with pytest.raises(UsageError, match=r"r\.json: row 1, of 1048576 bytes: it has no figures"):
        read(render(result).encode(), "r.json")


@pytest.mark.parametrize(
    ("samples_s", "skipped", "message"),
    [
        ([1e-5, 2e-5], -1, "-1 of 2 samples are skipped"),
        ([1e-5, 2e-5], 2, "2 of 2 samples are skipped"),
        ([1e-5, 1e308], 0, "a sample of 1e+308 seconds"),
        ([1e-5, -1e-6], 0, "a sample of -1e-06 seconds"),
        ([1e-5, -math.inf], 0, "a sample of -inf seconds"),
    ],
)
def test_samples_that_no_run_has_are_refused(
    make: Make, samples_s: list[float], skipped: int, message: str
) -> None:
    result = make()
    cell = result.rows[0].in_place
    assert cell
    cell.samples_s, cell.skipped = samples_s, skipped
    with pytest.raises(UsageError, match=re.escape(f"r.json: row 0, of 8 bytes: {message}")):
        read(results.render(result).encode(), "r.json")


def test_a_result_with_junk_is_refused_or_shown_in_every_view(make: Make) -> None:
    result = make(ideal=Ideal(4e11, "Ring", "NVLink", ""), spec={"per_iter_timing": 1})
    for row in result.rows:
        for cell in (row.out_of_place, row.in_place):
            assert cell
            cell.samples_s, cell.skipped = [1e-5, 2e-5, 3e-5], 1
    assert (
        sum(all(view.render(reread) is not None for view in VIEWS) for reread in damaged(result))
        > 500
    )


def test_figures_that_are_not_numbers_are_rendered(make: Make) -> None:
    result = make()
    cell = result.rows[0].out_of_place
    assert cell
    cell.algbw, cell.busbw, cell.time_s = float("inf"), float("nan"), 0.0
    reread = read(results.render(result).encode(), "r.json")
    for row in VIEWS:
        assert row.render(reread) == row.render(result)
    assert "nan" in view("nccl-tests").render(reread)


def test_the_collective_can_be_given(make: Make) -> None:
    document = json.loads(nccl_tests_json.render(make()))
    document["args"] = ["./my_benchmark"]
    data = json.dumps(document).encode()
    with pytest.raises(UsageError, match="it does not name the collective"):
        read(data, "a.json")
    assert read(data, "a.json", collective="broadcast").spec.collective == "broadcast"


@pytest.mark.parametrize(
    "render", [results.render, nccl_tests_json.render, view("nccl-tests").render]
)
def test_a_collective_other_than_the_files_own_is_refused(
    make: Make, render: Callable[[Result], str]
) -> None:
    data = render(make()).encode()
    assert read(data, "a", collective="AllReduce") == read(data, "a")
    with pytest.raises(
        UsageError, match=r"^a: .*: it is of all_reduce, --collective names broadcast"
    ) as caught:
        read(data, "a", collective="broadcast")
    assert caught.value.hint == "leave out --collective, which is for files that do not name one"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("size", -1, "row 1: a size of -1"),
        ("size", 1 << 63, "row 1: a size of 9223372036854775808"),
        ("size", 1 << 4000, "row 1: a size of 2^4000"),
        ("count", -(1 << 70), "row 1: a count of -2^70"),
        ("actual_iterations", -5, "row 1: a number of iterations of -5"),
        ("time", "-1", "row 1, of 1048576 bytes: a time of -1e-06 s"),
        ("alg_bw", "-1", "row 1, of 1048576 bytes: an algbw of -1 GB/s"),
        ("bus_bw", "-1", "row 1, of 1048576 bytes: a busbw of -1 GB/s"),
    ],
)
def test_figures_that_no_program_has_are_refused(
    make: Make, field: str, value: int | str, message: str
) -> None:
    document = json.loads(nccl_tests_json.render(make()))
    row = document["results"][1]
    (row if field in row else row["in_place"])[field] = value
    with pytest.raises(UsageError) as caught:
        read(json.dumps(document).encode(), "a.json")
    assert caught.value.message.startswith(f"a.json: {message}; ")


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_an_invalid_number_of_wrong_values_is_refused(make: Make, value: float) -> None:
    document = json.loads(nccl_tests_json.render(make()))
    document["results"][1]["in_place"]["nwrong"] = value
    with pytest.raises(
        UsageError,
        match=r"^a\.json: nccl-tests JSON: the row of 1048576 bytes: cannot convert float",
    ):
        read(json.dumps(document).encode(), "a.json")


def test_options_and_devices_of_a_real_run(recorded: Path) -> None:
    result = read((recorded / REAL).read_bytes(), REAL)
    assert (result.spec.output_file, result.spec.ngpus, result.spec.op) == ("ar.json", 2, "sum")
    assert [(device.rank, device.index, device.bus) for device in result.world.devices] == [
        (0, 0, "0000:00:06"),
        (1, 1, ""),
    ]
    assert (result.world.ranks, result.world.processes, result.library.nccl) == (2, 1, 22809)
    assert result.average_busbw() == pytest.approx(111.610112e9)


def test_samples_of_a_real_run(recorded: Path) -> None:
    result = read(
        (recorded / "nccl_tests/all_reduce_2xH200_sockets_per_iteration.json").read_bytes(), "x"
    )
    cell = result.rows[0].out_of_place
    assert cell
    assert cell.samples_s
    assert cell.process_samples_s
    assert (len(cell.samples_s), len(cell.process_samples_s), result.world.processes) == (200, 2, 2)
    assert cell.samples_s[0] == pytest.approx(1540.320039e-6)


def test_options_known_only_from_the_arguments(make: Make) -> None:
    argv = ["/x/all_reduce_perf_mpi", "-z3", "--average=3", "--report_t", "1", "-N", "0x2"]
    result = make(argv=argv, spec={"blocking": 1})
    spec = read(nccl_tests_json.render(result).encode(), "x").spec
    assert (spec.blocking, spec.average, spec.report_timestamps, spec.run_cycles) == (3, 3, 1, 2)


def test_older_versions_with_their_misspelling(make: Make) -> None:
    document = json.loads(nccl_tests_json.render(make()))
    document["version"] = 1
    document["average_bus_bandwidth"] = {"bandwidith": 1.0, "okay": "unchecked"}
    for key in ("per_iter_timing", "per_iter_skip"):
        del document["config"][key]
    result = read(json.dumps(document).encode(), "old.json")
    assert result.rows[1].in_place
    assert result.rows[1].in_place.busbw == pytest.approx(70.76e9)
    assert result.complete


def test_secrets_of_the_environment_are_dropped(make: Make) -> None:
    document = nccl_tests_json.render(
        make(environment={"NCCL_DEBUG": "INFO", "API_TOKEN": "hunter2"})
    )
    assert read(document.encode(), "x").environment == {"NCCL_DEBUG": "INFO", "API_TOKEN": "***"}


def test_a_broken_row_is_named(make: Make) -> None:
    document = nccl_tests_json.render(make()).replace('"root":"    -1"', '"root":"none"')
    with pytest.raises(UsageError, match="row of 8 bytes: invalid literal"):
        read(document.encode(), "x")


@given(data=st.data())
def test_a_file_cut_anywhere_gives_the_rows_that_are_whole(data: st.DataObject) -> None:
    content = (Path(__file__).parents[2] / "recorded" / REAL).read_bytes()
    ends = [
        index
        for index in range(len(content))
        if content.startswith(b'"actual_iterations": 20', index)
    ]
    # From here on config is whole; before it there is nothing to keep.
    cut = data.draw(st.integers(content.index(b'"results"'), len(content) - 1))
    result = read(content[:cut], "cut.json")
    assert not result.complete
    assert len(result.rows) in {
        sum(end + 23 <= cut for end in ends),
        sum(end + 23 < cut for end in ends),
    }
    assert all(row.in_place and row.out_of_place for row in result.rows)
    assert [row.size_bytes for row in result.rows] == [
        8 << index for index in range(len(result.rows))
    ]


def test_a_file_cut_before_its_first_row_is_refused_or_empty(recorded: Path) -> None:
    content = (recorded / REAL).read_bytes()
    with pytest.raises(UsageError, match="config"):
        read(content[:60], "cut.json")
    assert read(content[: content.index(b'"results"')], "cut.json").rows == []


RCCL = [
    {
        "numCycle": 0,
        "name": "AllGather",
        "nodes": 1,
        "ranks": 4,
        "ranksPerNode": 4,
        "gpusPerRank": 1,
        "size": size,
        "type": "float",
        "redop": "none",
        "inPlace": in_place,
        "time": 10.5,
        "algBw": 2.0,
        "busBw": 1.5,
        "wrong": "0",
    }
    for size in (64, 1024)
    for in_place in (0, 1)
]


@pytest.mark.parametrize(
    "data",
    [
        "[\n" + ",\n".join(map(json.dumps, RCCL)) + "\n]\n",
        "".join(json.dumps(record) + "\n" for record in RCCL),
        "numCycle, collective, ranks, rankspernode, gpusperrank, size, type, redop, inplace, time,"
        " algbw, busbw, #wrong\n"
        + "".join(
            f"0, AllGather, 4, 4, 1, {row['size']}, float, none, {row['inPlace']}, 10.5, 2.0,"
            " 1.5, 0\n"
            for row in RCCL
        ),
    ],
    ids=["list", "lines", "csv"],
)
def test_files_of_rccl_tests(data: str) -> None:
    result = read(data.encode(), "r.json")
    assert (result.tool, result.spec.collective, len(result.rows)) == (
        "rccl-tests",
        "all_gather",
        2,
    )
    assert [(row.size_bytes, row.count, row.dtype, row.op, row.iters) for row in result.rows] == [
        (64, 4, "float", "", 0),
        (1024, 64, "float", "", 0),
    ]
    assert result.rows[1].in_place == Cell(10.5e-6, 2e9, 1.5e9, 0)
    with pytest.raises(UsageError, match="it is of all_gather, --collective names reduce"):
        read(data.encode(), "r.json", collective="reduce")
    for cut in range(1, len(data), 41):
        with contextlib.suppress(UsageError):
            assert read(data[:cut].encode(), "r.json").rows


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"SQLite format 3\0\x10", "an SQLite database"),
        (
            (
                b"size(B)  count  type  scope  latency(us)  algbw(GB/s)  busbw(GB/s)\n"
                b"32 8 32-bit "
                b" thread  116.2 0.0 0.0\n"
            ),
            "NVSHMEM's perftest",
        ),
        (
            b"# OSU MPI Allreduce Latency Test v7.4\n# Size  Avg Latency(us)\n8  2.1\n",
            "OSU micro-benchmarks",
        ),
        (
            b" #bytes     #iterations    BW peak[Gb/sec]\n 65536      1000             98.1\n",
            "perftest",
        ),
        (
            b"| payload |    busbw   |    algbw   |\n|   32KiB |   0.92GBps |   0.48GBps |\n",
            "all_reduce_bench.py",
        ),
        (b'{"node": "n0", "nccl-bw:default/allreduce_8_busbw:0": 1.0}\n', "results of SuperBench"),
        (
            b"10:00 - INFO - NCCL Test Succeeded: Avg bus bandwidth is 230.167\n",
            "the verdict of a health check",
        ),
        (b"---- 1x 4.0GB ----\n busbw: 3722.778 Gbps\n", "a list of busbw without sizes"),
        (b"Network Tests v1.3\n  Test with 2 MPI ranks (2 nodes)\n", "output of GPCNet"),
        (
            b'<?xml version="1.0"?>\n<system version="1">\n <cpu numaid="0"/>\n</system>\n',
            "topology",
        ),
        (b"\tGPU0\tNIC0\nGPU0\t X \tPXB\nNIC0\tPXB\t X \n\n  SYS  = PCIe\n", "nvidia-smi topo"),
        (b'{"start":{"connected":[],"version":"iperf 3.12"},"end":{}}', "iperf3"),
        (b'{"benchmark":"nixlbench","results":[]}', "nixlbench"),
        (
            b"[rank 3] Dispatch + combine bandwidth: 40.21 GB/s, avg_t=541.0 us, min_t=530.1 us\n",
            "a test of DeepEP",
        ),
        (b"[tuning] Best combine: SMs 24, NVL chunk 4: 150.2 GB/s (NVL)\n", "a test of DeepEP"),
        (b" - EP:  3/16 | dispatch: 57 GB/s (SO), 170 GB/s (SU), 800.0 us\n", "a test of DeepEP"),
        (
            b"Tensor Shape        Tensor Size    pynccl    Best (Speedup vs PyNccl)\n",
            "a table of vLLM's benchmark_device_communicators.py",
        ),
        (b"   Name    Self CPU %    Self CPU   CPU total %\n", "a table of torch.profiler"),
        (
            b"______\n\nStart of NVIDIA bug report log file.  Please include this file\n",
            "a report of nvidia-bug-report.sh",
        ),
        (b"PK\x03\x04\x14\0\0\0\0\0", "an archive"),
        (b"\x28\xb5\x2f\xfd\x24\0", "an archive"),
        (b"dump_0" + b"\0" * 251 + b"ustar\x0000" + b"{}" * 200, "an archive"),
        (b"Job summary\n===========\n\n\nCommunicators... (0.00s)\n", "a report of NCCL's RAS"),
        (
            b"[Feb 27 2025 15:10:02] [ERROR] [tid 12727] detected NVSwitch non-fatal error 12028\n",
            "a log of NVIDIA's fabric manager",
        ),
        (
            b"[rank1]:[E614 11:14:03.0 ProcessGroupNCCL.cpp:1319] [PG 0 Rank 1] Failed to get\n",
            "a log of a program",
        ),
    ],
)
def test_files_of_other_programs_are_refused_by_their_names(data: bytes, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(data, "f")
    refusal = f"f: .*{re.escape(name)}.*, which busbw does not read"
    assert re.fullmatch(refusal, caught.value.message)
    assert caught.value.hint
