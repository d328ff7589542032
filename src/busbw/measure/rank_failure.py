"""Why a rank ended: its report, and the error that is made of it."""

import sys

import msgspec

from busbw.core.errors import BusbwError, Exit

FAILED_PREFIX = "busbw-failed: "


class Failed(msgspec.Struct):
    """Why a rank ended: message and hint of a BusbwError, exit code, rank and host."""

    message: str
    hint: str
    exit: int
    rank: int
    host: str
    kind: str = ""  # name of the error's class
    options: list[str] = []  # ids as in BusbwError


class RankFailed(BusbwError):
    """A rank ended and reported why. `exit` is its exit code, `kind` the class of its error."""

    def __init__(self, failed: Failed) -> None:
        where = ""
        if failed.rank >= 0 and failed.exit != Exit.USAGE:  # a usage error is that of all ranks
            where = f"rank {failed.rank} on {failed.host}: "
        super().__init__(where + failed.message, failed.hint, failed.options)
        self.exit, self.kind = Exit(failed.exit), failed.kind


def write_failure(failed: Failed) -> None:
    """Write a failure to stderr in one write, so that lines of several ranks do not mix."""
    sys.stderr.write(f"{FAILED_PREFIX}{msgspec.json.encode(failed).decode()}\n")
    sys.stderr.flush()


def failure(line: str) -> Failed | None:
    """The failure in a line of stderr, if any."""
    at = line.find(FAILED_PREFIX)
    if at < 0:
        return None
    try:
        return msgspec.json.decode(line[at + len(FAILED_PREFIX) :], type=Failed)
    except msgspec.DecodeError:
        return None
