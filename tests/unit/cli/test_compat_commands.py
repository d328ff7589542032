"""`busbw compat`: the commands named like nccl-tests' binaries, and files of others that it
leaves alone.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from busbw.cli import compat
from busbw.cli.main import guarded
from busbw.core.collectives import COLLECTIVES


def test_a_second_time_replaces_its_own_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(["compat", str(tmp_path)]) == 0
    command = tmp_path / "all_reduce_perf"
    text = command.read_text(encoding="utf-8")
    command.write_text(text.replace(sys.executable, "/gone/python"), encoding="utf-8")
    assert guarded(["compat", str(tmp_path)]) == 0
    assert command.read_text(encoding="utf-8") == text
    assert command.stat().st_mode & 0o777 == 0o755
    assert capsys.readouterr().out.startswith(f"{2 * len(COLLECTIVES)} commands in {tmp_path}; ")


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_foreign_files_are_kept_and_nothing_is_written(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "sendrecv_perf"
    if kind == "file":
        other.write_bytes(b"\x7fELF")
    elif kind == "link":
        other.symlink_to("/opt/nccl-tests/build/sendrecv_perf")
    else:
        other.mkdir()
    assert guarded(["compat", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {other}: exists and is not busbw's")
    assert [path.name for path in tmp_path.iterdir()] == ["sendrecv_perf"]


def test_links_of_an_earlier_busbw_are_replaced(tmp_path: Path) -> None:
    command = tmp_path / "all_reduce_perf"
    command.symlink_to("/gone/venv/bin/busbw")
    assert guarded(["compat", str(tmp_path)]) == 0
    assert not command.is_symlink()


def test_an_interpreter_whose_path_no_first_line_can_name(tmp_path: Path) -> None:
    interpreter = tmp_path / "a folder" / "python"
    interpreter.parent.mkdir()
    interpreter.symlink_to(sys.executable)
    command = tmp_path / "all_reduce_perf"
    text = compat.script(str(interpreter), "all_reduce_perf").replace(
        "from busbw.cli.main import entry", "from builtins import print"
    )
    command.write_text(text.replace("entry()", "print(sys.argv[0])"), encoding="utf-8")
    command.chmod(0o755)
    result = subprocess.run([command], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout) == (0, "all_reduce_perf\n"), result.stderr
