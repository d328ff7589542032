"""The tests share disturbances.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
