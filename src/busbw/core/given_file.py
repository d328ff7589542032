"""Reads whole files that a user names: up to a limit of bytes, and not from a device, which may
have no end.
"""

import codecs
import errno
import json
import logging
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

LOG = logging.getLogger(__name__)

# limit in bytes for measurements, logs and traces, which take several times as much memory
MAX_FILE_BYTES = 1 << 30
# Limit in bytes for what people write: lists of hosts, expectations, scripts
MAX_TEXT_BYTES = 64 << 20
_PIECE = 1 << 20
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_DOCKER = re.compile(rb'\s*\{"log":\s*"')


def read_whole(name: str | Path, limit: int = MAX_FILE_BYTES) -> bytes:
    """The content of a file or pipe; OSError also for a device and for more than `limit` bytes."""
    refuse_device(name)
    with Path(name).open("rb") as file:
        if os.fstat(file.fileno()).st_size > limit:
            raise _too_large(limit)
        data = read_stream(file, limit)
    LOG.debug("read %s, %d bytes", name, len(data))
    return data


def read_text(name: str | Path, limit: int = MAX_TEXT_BYTES) -> str:
    """The UTF-8 text in a file; OSError as `read_whole`, or UnicodeDecodeError."""
    return decoded(read_whole(name, limit))


def decoded(data: bytes) -> str:
    """The text in UTF-8, with `\\n` at the end of each line; UnicodeDecodeError if it is not."""
    return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def read_stream(stream: BinaryIO, limit: int = MAX_FILE_BYTES) -> bytes:
    """All of a stream; OSError for more than `limit` bytes."""
    pieces, size = [], 0
    while piece := stream.read(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
    return b"".join(pieces)


def unwrapped(data: bytes) -> bytes:
    """The content of a file as its program wrote it, in UTF-8: UTF-16 is what PowerShell writes to
    a file, and lines of JSON with the key `log` what Docker and collectors of logs do.
    """
    if data.startswith(_UTF_16):
        data = data.decode("utf-16", "replace").encode()
    data = data.removeprefix(codecs.BOM_UTF8)
    if not _DOCKER.match(data):
        return data
    lines = []
    for line in data.splitlines():
        try:
            lines.append(str(json.loads(line)["log"]))
        except (ValueError, KeyError, TypeError, RecursionError):  # one that was cut off
            continue
    # Docker leaves out the end of a line where a part of a longer one ends, collectors always.
    has_ends = any(line.endswith("\n") for line in lines)
    return ("" if has_ends else "\n").join(lines).encode()


def refuse_device(name: str | Path) -> None:
    """OSError for a device, before it is opened. A terminal is allowed as stdin: `/dev/stdin`."""
    mode = Path(name).stat().st_mode
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not _is_terminal(name)):
        raise OSError(errno.EINVAL, "not a regular file")


def _is_terminal(name: str | Path) -> bool:
    try:
        return os.path.samestat(Path(name).stat(), os.fstat(0)) and os.isatty(0)
    except OSError:
        return False


def _too_large(limit: int) -> OSError:
    return OSError(errno.EFBIG, f"larger than {limit >> 20} MiB")
