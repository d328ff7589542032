"""The command line of nccl-tests: where -J writes."""

from pathlib import Path

from busbw.cli.perf import output_file
from busbw.core.sweep import SweepSpec


def destination(path: Path) -> tuple[str, Path | None]:
    """The file that the result names, and the file that was made."""
    spec, file = output_file(SweepSpec(collective="all_reduce", output_file=str(path)))
    return spec.output_file, file


def test_the_output_file_never_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "run.JSON"
    for name in ("run.JSON", "run.JSON.0", "run.JSON.1"):
        assert (
            destination(path) == (str(tmp_path / name), tmp_path / name)
            and (tmp_path / name).exists()
        )


def test_a_name_without_json_is_not_written(tmp_path: Path) -> None:
    assert destination(tmp_path / "run.txt") == (str(tmp_path / "run.txt"), None)
    assert not list(tmp_path.iterdir())


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    assert destination(tmp_path / "none" / "run.json") == ("", None)
