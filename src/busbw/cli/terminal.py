"""The terminal that shows stdout."""

import os
import shutil
import sys

from busbw.launch.environment import detect


def width() -> int | None:
    """Columns of the terminal that stdout is (COLUMNS, or the terminal's own); None if stdout is a
    pipe or a file.

    Also None for ranks of an outer launcher: mpirun gives each a terminal of its own, and may write
    what it reads there to a file.
    """
    if sys.stdout is None or not sys.stdout.isatty() or detect(os.environ):
        return None
    return shutil.get_terminal_size().columns
