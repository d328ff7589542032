"""Packages of NCCL and the CUDA that they were built for."""

import json

import pytest

from busbw.host.nccl_packages import built_for, read_packages


@pytest.mark.parametrize(("name", "major"), [("nvidia-nccl-cu12", 12), ("nvidia-nccl-cu13", 13), ("nvidia-nccl", 0), ("numpy", 0)])
def test_major_version_of_cuda_in_the_name(name: str, major: int) -> None:
    assert built_for(name) == major


def test_only_packages_of_nccl_are_listed() -> None:
    assert all(name.startswith("nvidia-nccl-cu") and version for name, version in json.loads(read_packages()))
