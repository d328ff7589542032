"""The counters of RDMA ports, and the numbers of queue pairs of their devices.

`PortFiles` reads the counters of one port in sysfs often, with one system call for each.
`queue_pairs` asks the kernel by netlink, as `rdma resource show` does (rdma/rdma_netlink.h). Root
is not needed.
"""

import os
import socket
import struct
import time
from contextlib import ExitStack

from busbw.core.link_samples import CounterGroup
from busbw.core.watch_counters import port_counters
from busbw.host.dcb import DONE, DUMP, ERROR, HEADER, REQUEST, attributes, messages
from busbw.host.interfaces import number
from busbw.host.port_counters import Follow, follow
from busbw.host.source import Source, Unavailable

HARDWARE = "hw_counters"
STATES = ("state", "phys_state")  # with content like `4: ACTIVE`
_Files = list[tuple[str, Follow]]  # name of the counter, and its file
NETLINK_RDMA = 20
RESOURCES = 5 << 10 | 9  # RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_RES_GET)
# RDMA_NLDEV_ATTR_DEV_NAME, _RES_SUMMARY, _RES_SUMMARY_ENTRY_NAME, _CURR
DEVICE, SUMMARY, NAME, COUNT = 2, 15, 17, 18
LIMIT_S = 1.0  # for the whole answer
REPLY_BYTES = 1 << 16


class PortFiles:
    """The files of the port at `base`.

    `lost` is set once no file can be read: the device is gone, or another device took its name.
    """

    def __init__(self, source: Source, base: str, identity: int) -> None:
        self._opened, self._identity, self.lost = ExitStack(), identity, False
        self._base, self._source = base, source
        self._port: _Files = []
        self._hardware: _Files = []
        for row in port_counters():
            file = follow(source, f"{base}/{row.read_from}", self._opened)
            if file is not None and _integer(file()) is not None:
                in_hardware = row.read_from.partition("/")[0] == HARDWARE
                (self._hardware if in_hardware else self._port).append((row.name, file))
        self._states: _Files = []
        for name in STATES:
            file = follow(source, f"{base}/{name}", self._opened)
            if file is not None:
                self._states.append((name, file))
        # The kernel reads hardware counters again after so many milliseconds, and repeats them
        # until then.
        self._lifespan_s = (number(source.read(f"{base}/{HARDWARE}/lifespan").text) or 0) / 1000
        self._last: CounterGroup | None = None

    def read(self) -> dict[str, CounterGroup]:
        """The counters of the port by group: `counters` and HARDWARE, where they can be read.

        Hardware counters that the kernel would repeat are not read: their group is that of the last
        reading.
        """
        now = time.monotonic()
        values = _read_integers(self._port)
        for name, file in self._states:
            value = _integer((file() or b"").partition(b":")[0])
            if value is not None:
                values[name] = value
        groups = {"counters": CounterGroup(now, self._identity, values)} if values else {}
        if self._hardware and (self._last is None or now - self._last.at_s >= self._lifespan_s):
            values = _read_integers(self._hardware)
            self._last = CounterGroup(time.monotonic(), self._identity, values) if values else None
        if self._last is not None:
            groups[HARDWARE] = self._last
        self.lost = not groups and bool(self._port or self._hardware or self._states)
        return groups

    def reason(self, name: str) -> str:
        """Why counters of the port, called `name`, are missing; '' if none are."""
        if self._port and self._hardware:
            return ""
        folder = HARDWARE if self._port else "counters"
        names = self._source.names(f"{self._base}/{folder}")
        if not names:
            return f"{name}: its driver has no {folder}"
        reading = self._source.read(f"{self._base}/{folder}/{names[0]}")
        reason = reading.reason or f"{self._base}/{folder} has none that busbw knows"
        return f"{name}: no {folder}: {reason}"

    def close(self) -> None:
        self._opened.close()


def _read_integers(files: _Files) -> dict[str, int]:
    """The values by name; files that cannot be read are left out."""
    values = {}
    for name, file in files:
        value = _integer(file())
        if value is not None:
            values[name] = value
    return values


def _integer(data: bytes | None) -> int | None:
    try:
        return int(data) if data else None
    except ValueError:
        return None


def queue_pairs() -> dict[str, int]:
    """The number of queue pairs by device; Unavailable if the kernel does not give it."""
    deadline, counts = time.monotonic() + LIMIT_S, dict[str, int]()
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_RDMA) as netlink:
            netlink.sendto(HEADER.pack(HEADER.size, RESOURCES, REQUEST | DUMP, 1, 0), (0, 0))
            while (left_s := deadline - time.monotonic()) > 0:
                netlink.settimeout(left_s)
                part, done = decode(netlink.recv(REPLY_BYTES))
                counts |= part
                if done:
                    return counts
    except OSError as error:  # a TimeoutError, too
        reason = os.strerror(error.errno).lower() if error.errno else "no answer"
        raise Unavailable(f"queue pairs: netlink: {reason}") from error
    raise Unavailable("queue pairs: netlink: no answer")


def decode(reply: bytes) -> tuple[dict[str, int], bool]:
    """The numbers by device in a part of the answer, and whether it is the last part.

    Unavailable if it is an error.
    """
    counts: dict[str, int] = {}
    for kind, body in messages(reply):
        if kind == ERROR:
            code = -struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
            raise Unavailable(f"queue pairs: netlink: {os.strerror(code).lower()}")
        if kind == DONE:
            return counts, True
        fields = dict(attributes(body))
        if kind == RESOURCES and DEVICE in fields:
            count = _queue_pairs(fields.get(SUMMARY, b""))
            if count is not None:
                counts[fields[DEVICE].rstrip(b"\0").decode("utf-8", "replace")] = count
    return counts, False


def _queue_pairs(summary: bytes) -> int | None:
    """The number of the entry `qp` among those of all kinds of resources; None without one."""
    for _, entry in attributes(summary):
        fields = dict(attributes(entry))
        if fields.get(NAME, b"").rstrip(b"\0") == b"qp" and len(fields.get(COUNT, b"")) == 8:
            return int(struct.unpack("=Q", fields[COUNT])[0])
    return None
