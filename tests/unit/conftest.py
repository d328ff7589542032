"""Shared libraries built from a few lines of C; and generated examples have no deadline, since a busy machine is no failure."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("busbw", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busbw")

TABLES = "int ncclNetPlugin_v8 = 8; int ncclNetPlugin_v11 = 11;"


@pytest.fixture
def library(tmp_path: Path) -> Callable[..., Path]:
    """`library(source, name)` builds one; without a source, one that has what NCCL looks for in a net plugin."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc to build a library with")

    def build(source: str = TABLES, name: str = "libplugin.so") -> Path:
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", target], input=source.encode(), check=True)
        return target

    return build
