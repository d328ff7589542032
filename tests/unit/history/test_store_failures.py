"""Histories that cannot be read or written: broken files, full disks, read-only folders."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from history_runs import add, refused, result

from busbw.core.errors import NoMeasurement, UsageError
from busbw.history.store import opened


def test_a_file_that_is_not_a_database_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text('{"schema": "busbw.result/1"}' * 200)
    before = file.read_bytes()
    error = refused(file)
    assert isinstance(error, UsageError)
    assert "file is not a database" in error.message
    assert file.read_bytes() == before


def test_a_broken_database_is_named(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    add(file, *(result(i, samples=200) for i in range(20)))
    data = bytearray(file.read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 100] = b"\xff" * 100
    file.write_bytes(data)
    error = refused(file)
    assert isinstance(error, UsageError)
    assert "malformed" in error.message
    assert error.hint.startswith("restore a backup")


def test_an_impossible_path_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert isinstance(refused(tmp_path / "file" / "h.sqlite"), UsageError)
    assert isinstance(refused(tmp_path), UsageError)
    # as below a folder that another user may not enter
    assert isinstance(refused(tmp_path / ("x" * 300), create=False), UsageError)
    missing = refused(tmp_path / "none.sqlite", create=False)
    assert missing.message.endswith("no such history")
    assert missing.hint.endswith("or add a file: busbw history add result.json")
    assert not (tmp_path / "none.sqlite").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Mounts a file system of 256 KiB at tmp_path/disk, and again with other options."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def mount(options: str) -> None:
        result = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            pytest.skip(f"cannot mount a file system: {result.stderr.strip()}")

    if os.geteuid() or not shutil.which("mount"):
        pytest.skip("mounting a file system needs root")
    mount("size=256k")
    yield mount
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_named_and_stored_runs_are_kept(
    tmp_path: Path, small_disk: Callable[[str], None]
) -> None:
    file = tmp_path / "disk" / "h.sqlite"
    stored = 0
    with pytest.raises(NoMeasurement) as caught:
        for stored in range(1000):
            add(file, result(stored, samples=500))
    assert 0 < stored < 200
    assert f"{file}: the disk is full" in caught.value.message
    assert caught.value.hint == f"df -h {file.parent}"
    with opened(file, create=False) as history:
        runs = history.runs()
        assert len(runs) == stored
        assert len(list(history.times(runs))) == 4 * stored


def test_a_read_only_folder_is_named_and_runs_are_kept(
    tmp_path: Path, small_disk: Callable[[str], None]
) -> None:
    file = tmp_path / "disk" / "h.sqlite"
    add(file, result(1))
    small_disk("remount,ro")
    error = refused(file)
    assert isinstance(error, UsageError)
    assert "BUSBW_HISTORY=FILE" in error.hint
    small_disk("remount,rw")
    with opened(file, create=False) as history:
        assert len(history.runs()) == 1


def test_a_figure_that_no_database_holds_is_refused(tmp_path: Path) -> None:
    huge = result(rows=[msgspec.structs.replace(result().rows[0], size_bytes=1 << 70)])
    with (
        pytest.raises(UsageError, match="cannot be stored"),
        opened(tmp_path / "h.sqlite", create=True) as history,
    ):
        history.add([result(1), huge])
    with opened(tmp_path / "h.sqlite", create=False) as history:
        assert history.runs() == []
