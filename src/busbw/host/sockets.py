"""What a server asks about its connections."""

import select
import socket


def has_data(connection: socket.socket) -> bool:
    """Whether something waits to be read, or the other end was closed. recv would wait if the
    socket has a time limit.
    """
    poll = select.poll()
    try:
        poll.register(connection, select.POLLIN)
    except (OSError, ValueError):  # closed meanwhile
        return False
    return bool(poll.poll(0))
