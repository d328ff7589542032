"""The JSON is nccl-tests' version 4: against real runs by value, and byte for byte for a case
written by hand.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from busbw.core.ran import NcclKernel
from busbw.core.result import Result
from busbw.measure.formats import nccl_tests_json
from busbw.report.read import read

Make = Callable[..., Result]
RUNS = (
    "all_reduce_2xH200_one_process",
    "all_reduce_2xH200_sockets_per_iteration",
    "all_reduce_2xH200_two_processes_per_iteration",
)


def assert_same(expected: object, actual: object, path: str = "$") -> None:
    """Equal in keys, order, types and texts; numbers to the last printed decimal."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        assert list(actual) == list(expected), path
        for key, value in expected.items():
            assert_same(value, actual[key], f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(actual, list):
        assert len(actual) == len(expected), path
        for index, value in enumerate(expected):
            assert_same(value, actual[index], f"{path}[{index}]")
    elif isinstance(expected, float):
        assert actual == pytest.approx(
            expected, abs=2.1e-5 if path.endswith("cv_pct") else 2.1e-6
        ), path
    else:
        assert (type(actual), actual) == (type(expected), expected), path


@pytest.mark.parametrize("name", RUNS)
def test_a_real_run_read_and_written_again_is_the_same(recorded: Path, name: str) -> None:
    data = (recorded / "nccl_tests" / f"{name}.json").read_bytes()
    expected, actual = json.loads(data), json.loads(nccl_tests_json.render(read(data, "x")))
    processes = {
        (device["hostname"], device["pid"]): device
        for device in reversed(actual["config"]["devices"])
    }
    actual["config"]["devices"] = sorted(processes.values(), key=lambda device: device["rank"])
    assert (expected.pop("version"), actual.pop("version")) == (3, 4)
    assert_same(expected, actual)


def test_version_4_adds_tuning_to_rows(recorded: Path) -> None:
    data = (recorded / "nccl_tests/all_reduce_2xH200_one_process.json").read_bytes()
    document = json.loads(data) | {"version": 4}
    for row in document["results"]:
        row["tuning"] = {"implementation": "Coll", "algo": "RING", "proto": "LL", "#channels": 2}
    document["args"] += ["-U", "1"]
    result, without = read(json.dumps(document).encode(), "x"), read(data, "x")
    assert result.spec.tuning == 1
    assert {row.ran for row in result.rows} == {NcclKernel("Ring", "LL", 2)}
    for row in result.rows:
        row.ran = None
    assert result.rows == without.rows


def test_bytes_of_a_small_run(make: Make, golden: Callable[[str, str], None]) -> None:
    result = make(
        spec={"per_iter_timing": 1, "blocking": 2, "step_factor": 1},
        environment={
            "NCCL_TOPO_FILE": "/etc/topo.xml",
            "TITLE": 'a "b"\tc\nd\\e',
            "NAME": "caf\u00e9 au lait",
            "NCCL_TESTS_MIN_BW": "40",
        },
        errors=["first", "net/socket failed"],
        out_of_bounds=1,
    )
    first, second = result.rows
    assert first.out_of_place
    assert second.in_place
    first.out_of_place.samples_s, first.out_of_place.process_samples_s = (
        [2e-5, 1e-5],
        [[2e-5, 1e-5], [1e-5, 9e-6]],
    )
    first.out_of_place.skipped = 1
    first.in_place = None
    second.in_place.wrong, second.in_place.algbw = None, float("nan")
    golden("nccl_tests_small.json", nccl_tests_json.render(result))


def test_it_is_json_even_of_a_run_without_rows(make: Make) -> None:
    document = json.loads(nccl_tests_json.render(make([])))
    assert document["average_bus_bandwidth"] == {"bandwidth": "nan", "okay": "unchecked"}
    assert document["errors"] == [""]
    assert document["start_time"] == "2026-11-21 18:24:51"


def test_minimum_bandwidth_verdict(make: Make) -> None:
    for minimum, okay in (("30", "true"), ("34", "false")):
        document = json.loads(
            nccl_tests_json.render(make(environment={"NCCL_TESTS_MIN_BW": minimum}))
        )
        assert document["average_bus_bandwidth"]["okay"] == okay


def test_cputime_has_its_own_key(make: Make) -> None:
    result = make(spec={"report_cputime": 1})
    assert result.rows[0].in_place
    result.rows[0].in_place.cpu_time_s = 4e-6
    row = json.loads(nccl_tests_json.render(result))["results"][0]
    assert row["in_place"]["cpu_time"] == 4.0
    assert "time" not in row["in_place"]


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("a/b", r'"a\/b"'),
        ("x\ty", r'"x\ty"'),
        ("x\ry", '"x"'),
        ("\u00e9", '""'),
        ("a" * 3000, '"' + "a" * 2047 + '"'),
    ],
)
def test_strings_end_where_nccl_tests_ends_them(text: str, encoded: str) -> None:
    assert nccl_tests_json.string(text) == encoded


def test_the_json_of_a_log_can_be_read_again(recorded: Path) -> None:
    log = (recorded / "nccl_tests" / f"{RUNS[0]}.txt").read_bytes()
    first = read(log, "log")
    assert isinstance(first, Result) and not first.argv
    again = read(nccl_tests_json.render(first).encode(), "json")
    assert isinstance(again, Result)
    assert (again.spec.collective, len(again.rows)) == ("all_reduce", len(first.rows))
    assert again.rows[-1].out_of_place == first.rows[-1].out_of_place


def test_a_busbw_of_no_collective_is_a_finding(recorded: Path) -> None:
    document = json.loads((recorded / "nccl_tests" / f"{RUNS[0]}.json").read_bytes())
    for line in document["results"]:
        for place in ("out_of_place", "in_place"):
            line[place]["bus_bw"] = float(line[place]["bus_bw"]) * 50
    result = read(json.dumps(document).encode(), "json")
    assert isinstance(result, Result)
    (finding,) = result.findings
    assert "busbw / algbw is 50" in finding.evidence and "1 for 2 ranks" in finding.evidence
