"""What is called at the end of a process, also of one that `multiprocessing` has forked: that ends
without the functions of atexit.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable

LAST = 0  # after the program's own, which have no or a larger priority


def call_at_end(function: Callable[[], None]) -> None:
    """Call it at least once; more often if the process was forked since."""
    atexit.register(function)
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, function, exitpriority=LAST)
