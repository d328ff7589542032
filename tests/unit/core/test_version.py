"""One version: of busbw, of the crates of busbw-native, and of the changelog's newest section."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from busbw.cli.main import main
from busbw.core.version import __version__

ROOT = Path(__file__).parents[3]
PLACES = (
    "src/busbw/core/version.py",
    "accel/pyproject.toml",
    "native/Cargo.toml",
    "native/Cargo.lock",
    "native/fuzz/Cargo.lock",
    "CHANGELOG.md",
)


def check(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, root / "tools" / "versions.py"],
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_places_have_the_version_that_the_command_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = check(ROOT)
    assert (result.returncode, result.stderr) == (0, "")
    assert main(["busbw", "--version"]) == 0
    assert capsys.readouterr().out.split()[-1] == __version__


def test_every_place_with_another_version_is_named(tmp_path: Path) -> None:
    for place in (*PLACES, "tools/versions.py"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    source, *other_places = PLACES
    (tmp_path / source).write_text('__version__ = "77.8.9"\n')
    (tmp_path / other_places[-1]).write_text(
        "## [Unreleased]\n\n* Reads dumps of NCCL 2.28.3.\n\n## [77.8.8] - 2026-01-01\n"
    )
    result = check(tmp_path)
    assert result.returncode == 1
    for place in other_places[:-1]:
        assert f"{place} has {__version__}" in result.stderr
    assert "CHANGELOG.md has 77.8.8" in result.stderr
    assert "hint: make version" in result.stderr
