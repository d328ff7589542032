"""How often Python looks for garbage in busbw's own processes.

Never changed where busbw is a library.
"""

import gc

NEW_OBJECTS = 100_000


def collect_seldom() -> None:
    """Look for garbage after so many new objects, instead of 700: imports make many and free none.

    That was a tenth of the CPU time of a short command, and of a rank that imports PyTorch.
    """
    gc.set_threshold(NEW_OBJECTS)


def leave_at_exit() -> None:
    """Do not look for garbage at exit: Python does so three times, which takes 0.3 s among
    PyTorch's objects.
    """
    gc.freeze()
