"""Makes the modules in this folder importable by name, since tests are imported by path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
