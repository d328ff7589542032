"""Calls timed by CUDA events around each launch, with a driver whose events have known times."""

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from nccl_launches import PAIRS, SILENT_SINCE, duration_ns

from busbw.measure import profiler_calls, profiler_file
from busbw.measure.profiler_calls import ProfiledCall
from busbw.measure.profiler_file import ProcessFile
from busbw.pattern.collector import Collector
from busbw.pattern.readers import profiler

PROGRAM = Path(__file__).with_name("nccl_launches.py")
VERSIONS = (5, 6, 7)
MASKS = {5: 0xF06, 6: 0x1F06, 7: 0x1F06}
KERNEL_CH = 0x40
Run = Callable[..., tuple[ProcessFile, list[ProfiledCall], str]]


@pytest.fixture
def run(plugin_library: Path, driver: Path, tmp_path: Path) -> Run:
    """Runs a scenario: the process's file, its calls, and what it printed."""

    def run(scenario: str, version: int, **env: str) -> tuple[ProcessFile, list[ProfiledCall], str]:
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("NCCL_", "BUSBW_", "TORCH_"))
        }
        clean |= {"LD_LIBRARY_PATH": str(driver), "RANK": "0", "BUSBW_CAPTURE": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, str(PROGRAM), str(plugin_library), str(version), scenario],
            env=clean | {"BUSBW_CAPTURE_MODE": "timed"} | env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        (path,) = tmp_path.glob("*.capture")
        file = profiler_file.read(path)
        assert (file.dropped, file.broken, file.interface) == (0, 0, version)
        return file, profiler_calls.read_calls(file).calls, done.stdout

    return run


def notes(file: ProcessFile) -> list[str]:
    """What the reader says of a file."""
    collector = Collector("profiler")
    profiler.add(file, "host-1", collector)
    return collector.header.notes


@pytest.mark.parametrize("version", VERSIONS)
def test_every_call_has_the_time_of_its_launch(run: Run, version: int) -> None:
    file, calls, output = run("mixed", version)
    assert f"mask {MASKS[version]} events {2 * PAIRS}" in output
    assert [call.count for call in calls] == list(range(1, 3001))
    assert [(call.gpu_ns[1] - call.gpu_ns[0]) for call in calls if call.gpu_ns] == [
        duration_ns(number) for number in range(3000)
    ]
    around = {call.function for call in calls if call.clock == "call"}
    assert around == ({"broadcast"} if version >= SILENT_SINCE else set())
    assert {call.clock for call in calls if call.function != "broadcast"} == {"events"}
    for stream in (5, 9):
        spans = [call.gpu_ns for call in calls if call.stream == stream]
        gaps = [later[0] - span[1] for span, later in pairwise(spans)]
        assert all(abs(gap - 50) <= 2 for gap in gaps), "the stream's own clock"
    assert (file.no_event, file.captured, file.failed) == (0, 0, 0)
    assert not [note for note in notes(file) if "time" in note]


def test_calls_of_one_launch_share_its_time_by_their_bytes(run: Run) -> None:
    _, calls, _ = run("grouped", 7)
    assert [(call.function, call.count, call.gpu_us) for call in calls] == [
        ("all_reduce", 1000, 2.0),
        ("all_reduce", 3000, 6.0),
        ("all_gather", 10, 2.0),
        ("all_gather", 20, 5.0),
        ("send", 64, 6.0),
        ("recv", 64, 6.0),
        ("reduce", 5, 3.0),
        ("reduce", 5, 4.0),
    ]
    assert {call.clock for call in calls} == {"events"}
    shared = [call.gpu_ns for call in calls[:2]]
    assert shared[0][1] == shared[1][0]


def test_pool_that_runs_out_is_said_once_and_counted(run: Run) -> None:
    file, calls, output = run("pool", 7)
    timed = [call.gpu_us for call in calls if call.gpu_us is not None]
    assert (len(calls), len(timed), file.no_event) == (PAIRS + 101, PAIRS + 1, 100)
    assert output.count("the GPU is behind by more launches than there are CUDA events") == 1
    assert notes(file) == [
        "rank 0: 100 calls without a time: 100 launches while all CUDA events were in use"
    ]


@pytest.mark.parametrize("version", [5, 7])
def test_calls_in_graphs_have_no_time(run: Run, version: int) -> None:
    file, calls, output = run("captured", version)
    by_count = {count: [call for call in calls if call.count == count] for count in (8, 16, 32)}
    assert [call.gpu_us for call in by_count[8] + by_count[16]] == [None] * 4
    assert [(call.clock, call.gpu_us) for call in by_count[32]] == [("events", 7.0)]
    assert f"mask {MASKS[version] | KERNEL_CH} " in output
    assert (file.captured, file.failed) == (2, 0)
    assert any(
        "4 calls in CUDA graphs, of which NCCL gives no time" in note for note in notes(file)
    )


def test_error_of_the_driver_is_said_once_and_counted(run: Run) -> None:
    file, calls, output = run("failed", 6)
    assert [call.gpu_us for call in calls] == [None] * 5 + [1.0]
    assert file.failed == 5
    assert output.count("a CUDA event failed with CUresult 700") == 1
    assert "rank 0: 5 calls without a time: 5 CUDA events failed" in notes(file)


def test_threads_have_their_own_launches(run: Run) -> None:
    file, calls, _ = run("threads", 7)
    for comm in range(3):
        own = [call for call in calls if call.comm == comm]
        assert [call.count for call in own] == list(range(1, 701))
        timed = [(call.count, call.gpu_ns[1] - call.gpu_ns[0]) for call in own if call.gpu_ns]
        assert timed == [(number + 1, duration_ns(number)) for number, _ in enumerate(timed)]
    assert sum(call.gpu_ns is None for call in calls) == file.no_event


@pytest.mark.parametrize("version", [5, 7])
def test_communicator_that_launches_later_has_no_times_around_calls(run: Run, version: int) -> None:
    _, calls, _ = run("deferred", version)
    reductions = [call for call in calls if call.function == "all_reduce"]
    assert [(call.clock, call.gpu_us) for call in reductions] == [("events", 4.0)] * 3
    broadcasts = {call.gpu_us for call in calls if call.function == "broadcast"}
    assert broadcasts == ({None} if version >= SILENT_SINCE else {0.5})


def test_copy_engines_and_symmetric_kernels_are_timed(run: Run) -> None:
    _, calls, _ = run("copies", 7)
    assert [(call.algorithm, call.protocol, call.clock, call.gpu_us) for call in calls] == [
        ("CopyEngine", None, "events", 9.0),
        ("Symmetric", None, "events", 3.0),
    ]


def test_last_times_are_read_as_the_process_ends(run: Run) -> None:
    file, calls, _ = run("exits", 7)
    assert [call.gpu_us for call in calls] == [2.5]
    assert sum(record.kind == profiler_file.TIMED for record in file.records) == 1


def test_cheap_capture_creates_no_events(run: Run) -> None:
    _, calls, output = run("grouped", 6, BUSBW_CAPTURE_MODE="cheap")
    assert f"mask {0x1706} events 0" in output
    assert {call.gpu_us for call in calls} == {None}
