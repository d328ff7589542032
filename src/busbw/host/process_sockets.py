"""What waits in the TCP sockets of a process, from /proc."""

import contextlib
from pathlib import Path
from typing import NamedTuple

_ESTABLISHED = "01"  # include/net/tcp_states.h


class SocketQueues(NamedTuple):
    """Bytes of all connections that the process has not read, and that its peers have not
    acknowledged.
    """

    unread: int = 0
    unsent: int = 0


def queues(pid: int) -> SocketQueues | None:
    """None if the process has no connection, or may not be read."""
    own = set()
    with contextlib.suppress(PermissionError, FileNotFoundError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                own.add(link.readlink().name.removeprefix("socket:[").removesuffix("]"))
    found: list[SocketQueues] = []
    for table in ("tcp", "tcp6"):
        lines: list[str] = []
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _ESTABLISHED and fields[9] in own:
                unsent, unread = fields[4].split(":")
                found.append(SocketQueues(int(unread, 16), int(unsent, 16)))
    if not found:
        return None
    return SocketQueues(sum(one.unread for one in found), sum(one.unsent for one in found))
