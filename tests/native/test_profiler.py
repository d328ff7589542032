"""The profiler tables, driven as NCCL drives them, in processes that end in every way."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from abi import PROFILERS

from busbw.measure import profiler_calls, profiler_file

PROGRAM = Path(__file__).with_name("nccl_profiler.py")
FUNCTIONS = ("all_reduce", "reduce_scatter", "broadcast", "all_gather", "reduce")
CHEAP, TIMED = 0x6 | 0x700, 0x46 | 0x700
COPY_ENGINES = 0x1000  # from v6 on
RECORD_BYTES = 64
Application = Callable[..., str]
Mount = Callable[[str, str], Path]


@pytest.fixture
def no_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libcuda.so.1 that cannot be loaded."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "libcuda.so.1").write_text("no library")
    return folder


@pytest.fixture
def application(plugin_library: Path, no_driver: Path) -> Application:
    def run(version: int, count: int, ending: str, status: int = 0, **env: str) -> str:
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("NCCL_", "BUSBW_"))
        } | {"LD_LIBRARY_PATH": str(no_driver)}
        command = [
            sys.executable,
            str(PROGRAM),
            str(plugin_library),
            str(version),
            str(count),
            ending,
        ]
        done = subprocess.run(
            command, env=clean | env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == status, done.stderr
        return done.stdout

    return run


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mounts a file system of a type, with its options."""
    mounted = []

    def mount(kind: str, options: str) -> Path:
        done = subprocess.run(
            ["mount", "-t", kind, "-o", options, kind, tmp_path], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip(f"cannot mount a {kind}: {done.stderr.decode().strip()}")
        mounted.append(tmp_path)
        return tmp_path

    yield mount
    for folder in mounted:
        subprocess.run(["umount", folder], check=True)


def only(folder: Path) -> profiler_file.ProcessFile:
    (path,) = folder.glob("*.capture")
    return profiler_file.read(path)


@pytest.mark.parametrize("version", PROFILERS)
def test_nothing_is_recorded_unless_asked(
    application: Application, tmp_path: Path, version: int
) -> None:
    assert application(version, 3, "finalize").splitlines() == ["0 0 0", "done"]
    assert application(version, 3, "finalize", BUSBW_CAPTURE="").splitlines()[0] == "0 0 0"


@pytest.mark.parametrize(
    ("version", "ending"),
    [*((version, "finalize") for version in PROFILERS), (5, "exit"), (5, "kill")],
)
def test_every_call_is_found_in_order(
    application: Application, tmp_path: Path, version: int, ending: str
) -> None:
    count = 5000
    status = -9 if ending == "kill" else 0
    output = application(
        version,
        count,
        ending,
        status,
        BUSBW_CAPTURE=str(tmp_path),
        BUSBW_CAPTURE_MODE="timed",
        RANK="1",
    )
    copies = TIMED | COPY_ENGINES
    assert int(output.split()[0]) == {2: 0x6, 4: 0x46, 5: TIMED, 6: copies, 7: copies}[version]
    recording = only(tmp_path)
    calls, unknown, _ = profiler_calls.read_calls(recording)
    assert (unknown, recording.dropped, recording.broken, recording.interface, recording.rank) == (
        0,
        0,
        0,
        version,
        1,
    )
    expected = [
        (number, number % 3, FUNCTIONS[number % 5], "Ring", "Simple", 2) for number in range(count)
    ]
    assert [
        (call.count, call.comm, call.function, call.algorithm, call.protocol, call.channels)
        for call in calls
    ] == expected
    assert {call.gpu_us for call in calls} == ({None} if version == 2 else {0.501})
    assert {call.clock for call in calls} == ({None} if version == 2 else {"kernel"})
    assert ("no_events" in recording.facts) == (version >= 5)
    assert {
        call.dtype
        for call in calls
        if version >= 5 or call.function not in profiler_calls.UNTYPED_FUNCTIONS
    } == {"bfloat16"}
    assert [call.at_ns for call in calls] == sorted(call.at_ns for call in calls)
    comms = [(record.id, name) for record, name in profiler_file.names(recording)]
    assert comms == [(0x1000 + at, "comm" if version == 2 else f"comm {at}") for at in range(3)]


def test_cheap_mode_records_no_kernels(application: Application, tmp_path: Path) -> None:
    assert int(application(5, 10, "finalize", BUSBW_CAPTURE=str(tmp_path)).split()[0]) == CHEAP
    calls, *_ = profiler_calls.read_calls(only(tmp_path))
    assert len(calls) == 10
    assert {call.gpu_us for call in calls} == {None}
    assert {call.stream for call in calls} == {7}


def test_disk_without_room_for_the_ring_leaves_the_application_alone(
    application: Application, mount: Mount
) -> None:
    folder = mount("tmpfs", "size=1024k")
    mask, done = application(5, 10, "finalize", BUSBW_CAPTURE=str(folder)).splitlines()
    assert mask == "0 0 0"
    assert f"BUSBW_CAPTURE={folder}: cannot record calls: No space left on device" in done


def test_disk_that_fills_up_loses_counted_records(application: Application, mount: Mount) -> None:
    folder, count = mount("tmpfs", "size=4608k"), 40_000
    application(5, count, "finalize", BUSBW_CAPTURE=str(folder), BUSBW_CAPTURE_MODE="timed")
    recording = only(folder)
    calls, *_ = profiler_calls.read_calls(recording)
    assert recording.errno == 28
    assert 0 < len(calls) < count
    # communicators, their names, calls, ends
    assert len(recording.records) + recording.dropped == 3 + 3 + 3 * count + 3
    assert [call.count for call in calls] == sorted(call.count for call in calls)


def test_file_system_that_may_be_of_a_network_has_records_without_a_ring(
    application: Application, mount: Mount
) -> None:
    folder, count = mount("ramfs", "mode=700"), 2000  # not known to keep what is allocated
    application(5, count, "finalize", BUSBW_CAPTURE=str(folder), BUSBW_CAPTURE_MODE="timed")
    recording = only(folder)
    calls, *_ = profiler_calls.read_calls(recording)
    assert [call.count for call in calls] == list(range(count))
    assert {call.gpu_us for call in calls} == {0.501}
    assert (recording.dropped, recording.broken, recording.errno) == (0, 0, 0)
    (path,) = folder.iterdir()
    assert path.stat().st_size == profiler_file.HEADER_BYTES + RECORD_BYTES * len(recording.records)


@pytest.mark.parametrize(
    ("mode", "says"), [("fast", "BUSBW_CAPTURE_MODE=fast: neither cheap nor timed")]
)
def test_unknown_mode_is_refused_with_a_warning(
    application: Application, tmp_path: Path, mode: str, says: str
) -> None:
    mask, done = application(
        5, 1, "finalize", BUSBW_CAPTURE=str(tmp_path), BUSBW_CAPTURE_MODE=mode
    ).splitlines()
    assert mask == "0 0 0"
    assert says in done


def test_folder_that_cannot_be_made_is_named(application: Application, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = application(5, 1, "finalize", BUSBW_CAPTURE=str(tmp_path / "file")).splitlines()[1]
    assert f"{tmp_path / 'file'}: cannot record calls: " in done
