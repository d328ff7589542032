"""`busbw` and `python -m busbw`."""

import os
import sys

from busbw.core.version import __version__


def entry() -> None:
    """The console script. A version is printed without the imports of a command line."""
    if sys.argv[1:] == ["--version"] and _print_version():
        return
    from busbw.cli.main import entry as run

    run()


def _print_version() -> bool:
    """Whether it could be printed; if not, the command line reports why."""
    try:
        os.write(1, f"busbw, version {__version__}\n".encode())
    except OSError:
        return False
    return True


if __name__ == "__main__":
    entry()
