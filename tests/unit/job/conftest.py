"""Where ras_service.py is."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
