"""Says what a single file that was copied to this host is, as JSON of a DeployedBusbw.

`python3 busbw.pyz -m busbw.launch.deployed` also unpacks the packages, so that the next start finds
them.
"""

import platform
import sys

import msgspec

from busbw.core.version import __version__


class DeployedBusbw(msgspec.Struct, frozen=True):
    """A busbw that started: its version, and the version and path of its Python."""

    busbw: str
    python: str
    executable: str


def main() -> None:
    """Print what runs here."""
    deployed = DeployedBusbw(__version__, platform.python_version(), sys.executable)
    sys.stdout.write(msgspec.json.encode(deployed).decode() + "\n")


if __name__ == "__main__":
    main()
