"""Files that a user names, read whole: within a limit, and not from a device, which may have no
end.
"""

import errno
import logging
import os
import stat
from pathlib import Path
from typing import BinaryIO

LOG = logging.getLogger(__name__)

# bytes of a measurement, log or trace: read whole, it takes several times as much memory
MOST = 1 << 30
SMALL = 64 << 20  # bytes of what people write: lists of hosts, expectations, scripts
_PIECE = 1 << 20


def read_whole(name: str | Path, most: int = MOST) -> bytes:
    """What is in a file or comes through a pipe.

    OSError, also for a device and for more than `most` bytes.
    """
    refuse_device(name)
    with Path(name).open("rb") as opened:
        if os.fstat(opened.fileno()).st_size > most:
            raise _too_large(most)
        data = read_stream(opened, most)
    LOG.debug("read %s, %d bytes", name, len(data))
    return data


def read_text(name: str | Path, most: int = SMALL) -> str:
    """The UTF-8 text in a file; OSError as `read_whole`, or UnicodeDecodeError."""
    return read_whole(name, most).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def read_stream(stream: BinaryIO, most: int = MOST) -> bytes:
    """All of a stream; OSError for more than `most` bytes."""
    pieces, size = [], 0
    while piece := stream.read(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise _too_large(most)
    return b"".join(pieces)


def refuse_device(name: str | Path) -> None:
    """OSError for a device, before it is opened. A terminal is as good as a pipe: `/dev/stdin`."""
    mode = Path(name).stat().st_mode
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not _terminal(name)):
        raise OSError(errno.EINVAL, "not a regular file")


def _terminal(name: str | Path) -> bool:
    try:
        return os.path.samestat(Path(name).stat(), os.fstat(0)) and os.isatty(0)
    except OSError:
        return False


def _too_large(most: int) -> OSError:
    return OSError(errno.EFBIG, f"larger than {most >> 20} MiB")
