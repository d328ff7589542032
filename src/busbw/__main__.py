"""`busbw` and `python -m busbw`."""

import sys

from busbw.core.version import __version__


def entry() -> None:
    """The console script. A version is printed without the imports of a command line."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"busbw, version {__version__}\n")
        return
    from busbw.cli.main import entry as run

    run()


if __name__ == "__main__":
    entry()
