"""Builds the plugin once for all tests of it, and makes the modules beside the tests importable by name: tests are imported by path."""

import fcntl
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "native"
sys.path[:0] = [str(HERE), str(HERE.parent / "netlab")]

from fixtures import *  # noqa: E402, F403 - found by the path above; every fixture there is meant


@pytest.fixture(scope="session")
def plugin_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared library, built as it is shipped; skips where there is no cargo."""
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("no cargo to build the plugin with: install Rust 1.85 or newer")
    command = [cargo, "build", "--release", "--manifest-path", str(NATIVE / "Cargo.toml"), "-p", "plugin"]
    # One worker builds, the others find it built. Each takes a copy: for the next one cargo links the file anew.
    with (Path(tempfile.gettempdir()) / "busbw-native-build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run([*command, "--message-format=json-render-diagnostics"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        messages = map(json.loads, done.stdout.splitlines())
        (library,) = (
            Path(file)
            for message in messages
            if message["reason"] == "compiler-artifact" and "cdylib" in message["target"]["kind"]
            for file in message["filenames"]
            if file.endswith(".so")
        )
        return Path(shutil.copy(library, tmp_path_factory.mktemp("plugin")))
