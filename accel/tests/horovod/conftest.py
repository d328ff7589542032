"""Makes the modules beside the tests importable by name: tests are imported by path."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "tests" / "ranks")]
