"""The number of GPUs, as for busbw's tests, and the programs of ranks."""

import sys
from pathlib import Path

from tests.gpu.conftest import gpus

__all__ = ["gpus"]

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "exchange"), str(HERE.parents[2] / "tests" / "ranks")]
