"""The wheel of busbw-native: one for every Python, with the library, and without dependencies."""

import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from busbw.core.native import LIBRARY, PACKAGE

NATIVE = Path(__file__).parents[2] / "native"


def test_the_wheel_contains_the_library_and_has_no_dependencies(plugin_library: Path, tmp_path: Path) -> None:
    if not find_spec("maturin") or not find_spec("cffi"):
        pytest.skip("no maturin with cffi to build a wheel with")
    command = [sys.executable, "-m", "maturin", "build", "--release", "--compatibility", "linux", "-i", sys.executable, "-o", tmp_path]
    done = subprocess.run(command, cwd=NATIVE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.iterdir()
    assert "-py3-none-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as file:
        names = {info.filename: info.file_size for info in file.infolist()}
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        assert b"Requires-Dist" not in file.read(metadata)
    assert names[f"{PACKAGE}/{LIBRARY}"] == plugin_library.stat().st_size, "the library that the other tests load"
