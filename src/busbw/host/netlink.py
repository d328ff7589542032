"""Messages of the kernel's netlink sockets (linux/netlink.h): a header, then attributes of which
each may hold further ones.
"""

import struct
from collections.abc import Iterator

HEADER, ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
REQUEST, DUMP, ERROR, DONE = 0x1, 0x300, 2, 3  # NLM_F_REQUEST, NLM_F_DUMP, NLMSG_ERROR, NLMSG_DONE
TYPE_BITS = 0x3FFF  # without the flags "nested" and "network byte order"


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and value of each attribute; ends at the first that is none."""
    while len(data) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data)
        if not ATTRIBUTE.size <= length <= len(data):
            return
        yield kind & TYPE_BITS, data[ATTRIBUTE.size : length]
        data = data[(length + 3) & ~3 :]


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and body of each message; ends at the first that is none."""
    while len(data) >= HEADER.size:
        length, kind = HEADER.unpack_from(data)[:2]
        if not HEADER.size <= length <= len(data):
            return
        yield kind, data[HEADER.size : length]
        data = data[(length + 3) & ~3 :]
