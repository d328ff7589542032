"""Packages of NCCL and the CUDA that they were built for."""

import json
import sys
from pathlib import Path

import pytest

from busbw.host.nccl_packages import built_for, read_packages


@pytest.mark.parametrize(
    ("name", "major"),
    [("nvidia-nccl-cu12", 12), ("nvidia-nccl-cu13", 13), ("nvidia-nccl", 0), ("numpy", 0)],
)
def test_major_version_of_cuda_in_the_name(name: str, major: int) -> None:
    assert built_for(name) == major


def test_only_packages_of_nccl_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, version in (
        ("nvidia-nccl-cu13", "2.28.9"),
        ("nvidia-nccl-cu12", "2.27.7"),
        ("nvidia-nccl", "2.19"),
        ("numpy", "2.1"),
    ):
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
    (tmp_path / "broken-1.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert json.loads(read_packages()) == [
        ["nvidia-nccl-cu12", "2.27.7"],
        ["nvidia-nccl-cu13", "2.28.9"],
    ]
