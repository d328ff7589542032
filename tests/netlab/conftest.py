"""Fixtures of emulated hosts; skipped, with the reason, where this machine cannot make them."""

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from busbw.cli.main import guarded

SOURCE = str(Path(__file__).parents[2] / "src")


def _load(name: str) -> ModuleType:
    # Tests are imported by path (importlib mode), so other modules of this folder are not
    # importable by name.
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    spec.loader.exec_module(module)
    return module


netlab = _load("netlab")
slurm = _load("slurm")


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """here(lab, "check", ...) calls busbw in this process, which is none of the lab's hosts and
    reaches each of them.
    """

    def call(lab: Any, *words: str) -> Done:
        with monkeypatch.context() as patch:
            for name, value in {**lab.environment(), "PYTHONPATH": SOURCE}.items():
                patch.setenv(name, value)
            code = guarded(words)
        printed = capfd.readouterr()
        return Done(code, printed.out, printed.err)

    return call


def hosts(number: int) -> Iterator[object]:
    try:
        with netlab.lab(hosts=number) as lab:
            yield lab
    except netlab.Unavailable as error:
        pytest.skip(f"no emulated hosts: {error}")


@pytest.fixture
def two_hosts() -> Iterator[object]:
    yield from hosts(2)


@pytest.fixture
def three_hosts() -> Iterator[object]:
    yield from hosts(3)


@pytest.fixture
def four_hosts() -> Iterator[object]:
    yield from hosts(4)


@pytest.fixture
def four_hosts_one_slow() -> Iterator[object]:
    """The third host sends at 100 Mbit/s, the others as fast as they can."""
    try:
        with netlab.lab(hosts=4) as lab:
            netlab.limit(lab.hosts[2], 100)
            yield lab
    except netlab.Unavailable as error:
        pytest.skip(f"no emulated hosts: {error}")


@pytest.fixture
def three_slow_hosts() -> Iterator[object]:
    try:
        with netlab.lab(hosts=3, rate_mbit=100) as lab:
            yield lab
    except netlab.Unavailable as error:
        pytest.skip(f"no emulated hosts: {error}")


@pytest.fixture(scope="module")
def slurm_cluster() -> Iterator[object]:
    try:
        # Not in tmp_path: PMIx puts a socket far below, whose path may have 108 characters, and
        # that of a parallel run is too long.
        with (
            netlab.lab() as lab,
            tempfile.TemporaryDirectory(
                prefix="busbw-slurm-", ignore_cleanup_errors=True
            ) as folder,
            slurm.cluster(lab, Path(folder)) as cluster,
        ):
            yield cluster
    except (netlab.Unavailable, slurm.Unavailable) as error:
        pytest.skip(f"no emulated Slurm: {error}")


@pytest.fixture
def ssh_hosts() -> Iterator[object]:
    """(lab, environment) of four hosts that are reached by ssh itself."""
    try:
        with netlab.lab(hosts=4, sshd=True) as lab:
            yield lab, lab.environment()
    except netlab.Unavailable as error:
        pytest.skip(f"no emulated hosts with sshd: {error} (make test-tools)")
