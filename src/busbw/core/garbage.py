"""How often Python looks for garbage in busbw's own processes.

A program that uses busbw as a library keeps its own setting.
"""

import gc
import sys

TRITON = "triton._C.libtriton"
NEW_OBJECTS = 100_000


def collect_seldom() -> None:
    """Look for garbage after NEW_OBJECTS new objects instead of 700.

    Imports make many objects and free none. Looking for garbage took a tenth of the CPU time of a
    short command, and of a rank that imports PyTorch.
    """
    gc.set_threshold(NEW_OBJECTS)


def leave_at_exit() -> None:
    """Do not look for garbage at exit.

    Python does so three times, which takes 0.3 s with PyTorch's objects. With Triton loaded it is
    left to do so: Triton's library prints each of its objects that is left at exit.
    """
    if TRITON not in sys.modules:
        gc.freeze()
