"""The command line of nccl-tests: where -J writes."""

from pathlib import Path

from busbw.cli.perf import output_path


def test_the_output_file_never_overwrites(tmp_path: Path) -> None:
    wanted = tmp_path / "run.JSON"
    assert output_path(str(wanted)) == wanted
    wanted.touch()
    assert output_path(str(wanted)) == tmp_path / "run.JSON.0"
    (tmp_path / "run.JSON.0").touch()
    assert output_path(str(wanted)) == tmp_path / "run.JSON.1"
    assert output_path(str(tmp_path / "run.txt")) is None
