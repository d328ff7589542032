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
    return shutil.get_terminal_size().columns if _is_shown() else None


def height() -> int | None:
    """Lines of the terminal that stdout is; None if there is no such terminal, as for `width`."""
    return shutil.get_terminal_size().lines if _is_shown() else None


def _is_shown() -> bool:
    return sys.stdout is not None and sys.stdout.isatty() and not detect(os.environ)
