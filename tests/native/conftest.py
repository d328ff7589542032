"""Makes the modules in this folder importable by name: tests are imported by path."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "netlab")]

from fixtures import *  # noqa: E402, F403 - found by the path above; all fixtures are used
