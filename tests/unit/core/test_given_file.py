"""A file named by the user is read whole only if it has an end."""

import gzip
import os
import threading
from pathlib import Path

import pytest

from busbw.cli.main import guarded
from busbw.core import gzip_stream
from busbw.core.given_file import read_stream, read_text, read_whole, unwrapped
from busbw.core.gzip_stream import unpacked

READERS = [
    "show /dev/zero",
    "report /dev/zero",
    "compare /dev/zero /dev/zero",
    "explain /dev/zero",
    "history add /dev/zero",
    "show /dev/zero --input-format nccl-log",
    "replay /dev/zero",
    "link --hostfile /dev/zero",
    "predict --topo /dev/zero",
    "tune --recheck /dev/zero",
    "check --from /dev/zero",
    "check --expect /dev/zero",
    "run all_reduce --hostfile /dev/zero",
    "run alltoallv --engine sim --counts file:/dev/zero",
]


@pytest.mark.parametrize("words", READERS)
def test_a_device_without_an_end_is_refused(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BUSBW_HISTORY", str(tmp_path / "history.db"))
    assert guarded(words.split()) == 2
    err = capsys.readouterr().err
    assert "/dev/zero: not a regular file" in err
    assert "hint: " in err


def test_a_file_larger_than_the_limit_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 3 << 30)  # sparse
    with pytest.raises(OSError, match="larger than 1024 MiB"):
        read_whole(tmp_path / "large")
    (tmp_path / "lines").write_bytes("h1\r\nh2 é\n".encode())
    assert read_text(tmp_path / "lines") == "h1\nh2 é\n"
    with pytest.raises(OSError, match="larger than 1 MiB"), Path("/dev/zero").open("rb") as endless:
        read_stream(endless, 1 << 20)


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[b"x" * (3 << 20)])
    writer.start()
    assert len(read_whole(tmp_path / "pipe")) == 3 << 20
    writer.join()


@pytest.mark.parametrize("words", ["show", "compare {0}", "report", "check --from", "history add"])
def test_a_small_file_that_decompresses_without_an_end_is_refused(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BUSBW_HISTORY", str(tmp_path / "history.db"))
    monkeypatch.setattr(gzip_stream, "FREE_BYTES", 1 << 20)
    file = tmp_path / "bomb.gz"
    file.write_bytes(gzip.compress(b"\0" * (4 << 20)))
    assert guarded([*words.format(file).split(), str(file)]) == 2
    assert "compressed bytes become more than 200 times as many" in capsys.readouterr().err


def test_decompressed_content_has_a_limit_of_bytes_and_an_end() -> None:
    content = b"0123456789" * 20
    packed = gzip.compress(content) + gzip.compress(content)
    assert unpacked(packed, 400) == 2 * content
    assert unpacked(content, 1) == content
    with pytest.raises(OSError, match="larger than 0 MiB"):
        unpacked(packed, 399)
    with pytest.raises(OSError, match="cut off"):
        unpacked(packed[:-9], 400)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_no_content(encoding: str) -> None:
    """Editors and PowerShell write it."""
    assert unwrapped('{"größe": 1}'.encode(encoding)) == '{"größe": 1}'.encode()
