"""For all unit tests: shared libraries from a few lines of C, recorded machines, and no deadline
for generated examples.
"""

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from logging.handlers import BufferingHandler
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parents[1] / "hosts"))  # trees of machines
sys.path.insert(0, str(Path(__file__).parent / "check"))  # cases*.py
sys.path.append(str(Path(__file__).parents[1] / "ranks"))  # jobs of ranks with PyTorch
sys.path.append(str(Path(__file__).parent))  # results.py, nodes_and_watches.py

from results import make, make_cell

from busbw.host import cpu

__all__ = ["make", "make_cell"]

# A busy machine must not fail a test. `make deep` takes many examples of each property.
for name, examples in (("busbw", 25), ("deep", 300)):
    settings.register_profile(
        name, deadline=None, max_examples=examples, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "busbw"))

TABLES = "int ncclNetPlugin_v8 = 8; int ncclNetPlugin_v11 = 11;"


@pytest.fixture(scope="session", autouse=True)
def no_pauses_between_readings_of_the_load() -> Iterator[None]:
    """Hundreds of runs of the sim engine read it; each would wait for a twentieth of a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "LOAD_PAUSE_S", 0.0)
        yield


@pytest.fixture
def logged() -> Iterator[Callable[[], list[str]]]:
    """`logged()` are the messages that busbw has logged so far, from INFO on."""
    logger, handler = logging.getLogger("busbw"), BufferingHandler(capacity=10_000)
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield lambda: [record.getMessage() for record in handler.buffer]
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.fixture
def library(tmp_path: Path) -> Callable[..., Path]:
    """`library(source, name)` builds one; without a source, one that has what NCCL looks for in
    a net plugin. More words are options of gcc.
    """
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc: make test-tools")

    def build(source: str = TABLES, name: str = "libplugin.so", *options: str) -> Path:
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", target, *options],
            input=source.encode(),
            check=True,
        )
        return target

    return build
