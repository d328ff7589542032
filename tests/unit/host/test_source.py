"""One interface reads a live machine, a directory tree and an archive, and gives a reason for
whatever could not be read.
"""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.host.snapshot import Recording, parse_archive, recorded
from busbw.host.source import LiveMachine, Reading, Unavailable


def unavailable() -> str:
    raise Unavailable("no driver")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "sys/class/net/eth0").mkdir(parents=True)
    (tmp_path / "sys/class/net/eth0/speed").write_text("25000\n")
    (tmp_path / "sys/class/net/eth0/device").symlink_to("../../../0000:00:03.0")
    (tmp_path / "sys/blob").write_bytes(b"\xff\x00\x01")
    (tmp_path / "calls").mkdir()
    (tmp_path / "calls/nvml").write_text('{"gpus": []}')
    return tmp_path


def test_a_live_root_reads_files_directories_and_links(tree: Path) -> None:
    live = LiveMachine(tree)
    assert live.read("/sys/class/net/eth0/speed") == Reading(b"25000\n")
    assert live.read("/sys/class/net/eth0/speed").text == "25000"
    assert live.names("/sys/class/net/eth0") == ("device", "speed")
    assert live.link("/sys/class/net/eth0/device") == "../../../0000:00:03.0"
    assert live.read("/nothing") == Reading(None, "/nothing: no such file or directory")
    assert live.read("/sys").reason == "/sys: is a directory"
    assert live.names("/nothing") == () and live.link("/sys/blob") is None


@pytest.mark.parametrize(
    "target",
    [
        "/secret/file",
        "../../../../../../secret/file",
        "{outside}/secret/file",
        "/loop/../secret/file",
    ],
)
def test_links_of_a_tree_stay_within_it(tmp_path: Path, target: str) -> None:
    outside, tree = tmp_path, tmp_path / "tree"
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/file").write_text("this machine's")
    (tree / "sys/class/net").mkdir(parents=True)
    (tree / "sys/class/net/eth0").symlink_to(target.format(outside=outside))
    (tree / "sys/class/folder").symlink_to(f"{outside}/secret")
    (tree / "loop").symlink_to("loop")
    live = recorded(tree)
    assert live.read("/sys/class/net/eth0").data is None
    assert (
        live.read("/sys/class/folder/file").data is None and live.names("/sys/class/folder") == ()
    )
    assert live.link("/sys/class/net/eth0") == target.format(outside=outside)
    assert (
        live.link("/sys/class/folder/file") is None
        and live.read("/sys/../../secret/file").data is None
    )
    assert live.read("/loop").reason == "/loop: too many levels of symbolic links"
    (tree / "loop").unlink()
    (tree / "secret").mkdir()
    (tree / "secret/file").write_text("the tree's")
    if "{" not in target and "loop" not in target:
        assert live.read("/sys/class/net/eth0").text == "the tree's"


def test_a_path_has_40_links_at_most(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("end")
    for number in range(1, 42):
        (tmp_path / str(number)).symlink_to(str(number - 1))
    live = recorded(tmp_path)
    assert (live.read("/40").text, live.read("/41").reason) == (
        "end",
        "/41: too many levels of symbolic links",
    )
    assert (
        live.link("/41"),
        live.link("/41/"),
        live.link("/"),
        live.link("/40/.."),
        live.link("/."),
    ) == ("40", "40", None, None, None)


def test_links_within_a_tree_work_and_only_regular_files_are_read(tmp_path: Path) -> None:
    device = tmp_path / "sys/devices/pci0000:00/0000:00:03.0"
    (device / "net/eth0").mkdir(parents=True)
    (device / "net/eth0/mtu").write_text("9000\n")
    (device / "net/eth0/device").symlink_to("../../../0000:00:03.0")
    (tmp_path / "sys/class/net").mkdir(parents=True)
    (tmp_path / "sys/class/net/eth0").symlink_to("../../devices/pci0000:00/0000:00:03.0/net/eth0")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/self").symlink_to("7")
    (tmp_path / "proc/7").mkdir()
    (tmp_path / "proc/7/status").write_text("Name: a")
    (tmp_path / "proc/7/fd").symlink_to("pipe:[1]")
    os.mkfifo(tmp_path / "proc/mounts")
    live = LiveMachine(tmp_path)
    assert (
        live.read("/sys/class/net/eth0/mtu").text
        == live.read("/sys/class/net/eth0/device/net/eth0/mtu").text
        == "9000"
    )
    assert live.link("/sys/class/net/eth0/device") == "../../../0000:00:03.0" and live.names(
        "/sys/class/net/eth0/device/"
    ) == ("net",)
    assert (
        live.read("/proc/self/status").text == "Name: a" and live.read("/proc/self/fd").data is None
    )
    assert live.read("/proc/mounts").reason == "/proc/mounts: not a regular file"


def test_a_live_call_returns_its_result_or_reason() -> None:
    assert LiveMachine().call("nvml", lambda: "said").text == "said"
    assert LiveMachine().call("nvml", unavailable) == Reading(None, "no driver")


def test_a_recorded_tree_never_executes_calls(tree: Path) -> None:
    machine = recorded(tree)
    assert machine.call("nvml", unavailable).text == '{"gpus": []}'
    assert machine.call("other", lambda: "ran").reason == "the recording has no 'other'"


def test_an_archive_returns_the_recorded_answers(tree: Path, tmp_path: Path) -> None:
    recording = Recording(LiveMachine(tree))
    paths = ("/sys/class/net/eth0/speed", "/sys/blob", "/nothing")
    first = [recording.read(path) for path in paths]
    names, link = (
        recording.names("/sys/class/net/eth0"),
        recording.link("/sys/class/net/eth0/device"),
    )
    called = recording.call("nvml", unavailable)
    archive = tmp_path / "host.jsonl"
    archive.write_text(recording.archive())
    later = recorded(archive)
    assert [later.read(path) for path in paths] == first
    assert (later.names("/sys/class/net/eth0"), later.link("/sys/class/net/eth0/device")) == (
        names,
        link,
    )
    assert later.call("nvml", lambda: "ran") == called == Reading(None, "no driver")
    assert later.read("/never/asked").reason == "/never/asked: not in the recording"


def test_an_archive_lists_recorded_entries_only() -> None:
    entries = [
        {"schema": "busbw.host/1"},
        {"path": "/a/b/c", "text": "1"},
        {"path": "/a/x", "error": "/a/x: no such file or directory"},
    ]
    source = parse_archive("\n".join(map(json.dumps, entries)))
    assert (
        source.names("/a") == ("b",)
        and source.names("/") == ("a",)
        and source.names("/a/b/c") == ()
    )


@given(st.binary(max_size=40))
def test_any_bytes_survive_a_recording(data: bytes) -> None:
    class One(LiveMachine):
        def read(self, path: str) -> Reading:
            return Reading(data)

    recording = Recording(One())
    recording.read("/blob")
    assert parse_archive(recording.archive()).read("/blob").data == data


@pytest.mark.parametrize(
    ("data", "kind"), [(b"\0a", "text"), (b"\0\0a", "base64"), (b"\xff", "base64"), (b"", "text")]
)
def test_data_of_mostly_zeros_is_recorded_as_base64(tmp_path: Path, data: bytes, kind: str) -> None:
    (tmp_path / "blob").write_bytes(data)
    recording = Recording(LiveMachine(tmp_path))
    recording.read("/blob")
    assert set(json.loads(recording.archive().splitlines()[1])) == {"path", kind}


def test_file_names_of_any_bytes_are_recorded(tmp_path: Path) -> None:
    (tmp_path / "shm").mkdir()
    (tmp_path / "shm" / os.fsdecode(b"bad\xff")).touch()
    recording = Recording(LiveMachine(tmp_path))
    recording.names("/shm")
    assert parse_archive(recording.archive().encode()).names("/shm") == ("bad?",)


DEEP = b'{"path": "/a", "else": ' + b"[" * 100_000


@pytest.mark.parametrize(
    "line",
    [
        b'{"path": "/a", "base64": "!"}',
        b'{"path": "/a", "text": "\xff"}',
        b'{"path": 5}',
        b"[]",
        b"",
        DEEP,
    ],
)
def test_the_line_of_an_archive_that_is_wrong_is_named(line: bytes) -> None:
    with pytest.raises(UsageError, match=r"a\.jsonl: line 2 is"):
        parse_archive(b'{"schema": "busbw.host/1"}\n' + line + b"\n{}\n", "a.jsonl")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "a.jsonl: it is empty"),
        ('{"path": "/a"}', 'a.jsonl: line 1 is \'{"path": "/a"}\', not {"schema": "busbw.host/1"}'),
        (
            '{"schema": "busbw.host/1"}\n{"text": "a"}',
            'a.jsonl: line 2 is \'{"text": "a"}\', not a path or a call',
        ),
        (
            b'{"schema": "busbw.host/1", "lines": 2}\n{"path": "/a"}',
            "a.jsonl: it has 1 of 2 lines: it was cut off",
        ),
        (
            b'{"schema": "busbw.host/1", "lines": 2}\n{"path": "/a"}\n{"path": "/b", "te',
            "a.jsonl: it ends within line 3: it was cut off",
        ),
    ],
)
def test_reasons_why_a_text_is_not_an_archive(data: str | bytes, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_archive(data, "a.jsonl")
    assert caught.value.message == message
