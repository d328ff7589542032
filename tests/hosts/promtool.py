"""Prometheus' own checks of metrics and rules."""

import shutil
import subprocess
from pathlib import Path

import pytest

LIMIT_S = 60


def promtool(*words: str, stdin: bytes = b"", folder: Path | None = None) -> list[str]:
    """The lines that promtool prints; the test is skipped where it is not installed."""
    if not shutil.which("promtool"):
        pytest.skip("no promtool: make test-tools")
    result = subprocess.run(
        ["promtool", *words],
        input=stdin,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
        cwd=folder,
    )
    lines = (result.stdout + result.stderr).decode().splitlines()
    assert lines or not result.returncode
    return lines
