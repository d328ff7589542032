"""How many queue pairs each RDMA device has, as `rdma resource show` says (rdma/rdma_netlink.h).

Root is not needed.
"""

import os
import socket
import struct
import time

from busbw.host.netlink import DONE, DUMP, ERROR, HEADER, REQUEST, attributes, messages
from busbw.host.source import Unavailable

NETLINK_RDMA = 20
RESOURCES = 5 << 10 | 9  # RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_RES_GET)
# RDMA_NLDEV_ATTR_DEV_NAME, _RES_SUMMARY, _RES_SUMMARY_ENTRY_NAME, _CURR
DEVICE, SUMMARY, NAME, COUNT = 2, 15, 17, 18
LIMIT_S = 1.0  # for the whole answer
REPLY_BYTES = 1 << 16


def queue_pairs() -> dict[str, int]:
    """The number by device; Unavailable where the kernel does not tell."""
    deadline, counts = time.monotonic() + LIMIT_S, dict[str, int]()
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_RDMA) as asked:
            asked.sendto(HEADER.pack(HEADER.size, RESOURCES, REQUEST | DUMP, 1, 0), (0, 0))
            while (left_s := deadline - time.monotonic()) > 0:
                asked.settimeout(left_s)
                found, done = decode(asked.recv(REPLY_BYTES))
                counts |= found
                if done:
                    return counts
    except OSError as error:  # a TimeoutError, too
        raise Unavailable(
            "queue pairs: netlink:"
            f" {os.strerror(error.errno).lower() if error.errno else 'no answer'}"
        ) from error
    raise Unavailable("queue pairs: netlink: no answer")


def decode(reply: bytes) -> tuple[dict[str, int], bool]:
    """The numbers in a part of the answer, and whether it is the last part; Unavailable if it is
    an error.
    """
    counts: dict[str, int] = {}
    for kind, body in messages(reply):
        if kind == ERROR:
            code = -struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
            raise Unavailable(f"queue pairs: netlink: {os.strerror(code).lower()}")
        if kind == DONE:
            return counts, True
        found = dict(attributes(body))
        if kind == RESOURCES and DEVICE in found:
            count = _queue_pairs(found.get(SUMMARY, b""))
            if count is not None:
                counts[found[DEVICE].rstrip(b"\0").decode("utf-8", "replace")] = count
    return counts, False


def _queue_pairs(summary: bytes) -> int | None:
    """The entry `qp` among those of all kinds of resources."""
    for _, entry in attributes(summary):
        fields = dict(attributes(entry))
        if fields.get(NAME, b"").rstrip(b"\0") == b"qp" and len(fields.get(COUNT, b"")) == 8:
            return int(struct.unpack("=Q", fields[COUNT])[0])
    return None
