"""The TCP connections of processes as the kernel's sock_diag(7) lists them, with the TCP_INFO of
each: what it sent and received, and how long data waited for the network.
"""

import contextlib
import ctypes
import errno
import functools
import ipaddress
import os
import socket
import struct
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from busbw.host.tcp_connections import DATA_SENT_AT, RESENT_AT, TIMEOUTS_AT, waited_for_network_s

_SOCK_DIAG, _BY_FAMILY = 4, 20  # linux/netlink.h, linux/sock_diag.h
_DUMP, _DONE, _ERROR = 0x301, 3, 2  # NLM_F_REQUEST | NLM_F_DUMP; NLMSG_DONE, NLMSG_ERROR
_INFO = 2  # INET_DIAG_INFO
_ESTABLISHED = 1
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_REQUEST = struct.Struct("=BBBBI48x")  # struct inet_diag_req_v2
_ID = slice(4, 52)  # struct inet_diag_sockid in struct inet_diag_msg
_ADDRESSES = struct.Struct("16s16s")
_ADDRESSES_AT = 8
_QUEUES = struct.Struct("=IIII")  # the rest of it: rqueue, wqueue, uid, inode
_QUEUES_AT, _SOCKET_BYTES = 56, 72
_MAPPED = bytes(10) + b"\xff\xff"  # IPv4 in IPv6
# struct tcp_info of linux/tcp.h; a kernel before 4.10 gives fewer bytes
_COUNT = struct.Struct("=I")
_BYTES = struct.Struct("=QQII")  # acknowledged, received; segments out, in: Linux 4.2
_BYTES_AT = 120
_DOUBLED_AT = 216  # tcpi_dsack_dups: 4.19
_ROOM, _LIMIT_S = 1 << 16, 1.0
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET of linux/sched.h
FILES_EVERY_S = 10.0  # between readings of which sockets a process has


class TcpSocket(NamedTuple):
    """A connection. From `acked` on counts only rise; what an older kernel does not count is 0."""

    id: bytes  # which no other connection has
    local: str
    peer: str
    queued: int  # bytes that the peer has not acknowledged
    timeouts: int  # in a row
    acked: int = 0  # bytes
    resent: int = 0  # segments
    doubled: int = 0  # of these, what the peer had already
    data_sent: int = 0  # segments with data
    sent: int = 0  # segments
    heard: int = 0  # segments that arrived
    waited_us: int = 0  # in which data waited for the network alone


class ProcessSockets:
    """The connections of processes, each in its own network namespace."""

    def __init__(self) -> None:
        self._files: dict[int, tuple[float, str, frozenset[int]]] = {}  # by process

    def read(self, pids: Collection[int], now_s: float) -> list[TcpSocket]:
        """The established connections of these processes; none of those that may not be read."""
        inodes_in: dict[str, set[int]] = {}
        pid_in: dict[str, int] = {}
        for pid in pids:
            network, inodes = self._sockets_of(pid, now_s)
            if inodes:
                inodes_in.setdefault(network, set()).update(inodes)
                pid_in[network] = pid
        for gone in self._files.keys() - set(pids):
            del self._files[gone]
        found: list[TcpSocket] = []
        for network, inodes_here in inodes_in.items():
            # no sock_diag here, the namespace may not be entered, or no end within the limit
            with contextlib.suppress(OSError):
                for reply in _replies(network, pid_in[network]):
                    found += parse(reply, inodes_here)
        return found

    def _sockets_of(self, pid: int, now_s: float) -> tuple[str, frozenset[int]]:
        """The network namespace and the inodes of the sockets of a process."""
        read_s, network, inodes = self._files.get(pid, (-FILES_EVERY_S, "", frozenset[int]()))
        if now_s >= read_s + FILES_EVERY_S:
            network, inodes = _network(pid), _inodes(pid)
            self._files[pid] = now_s, network, inodes
        return network, inodes


def _replies(network: str, pid: int) -> Iterator[bytes]:
    """The parts of the dumps of the network namespace of a process; OSError."""
    with contextlib.closing(_socket_in(network, pid)) as netlink:
        netlink.settimeout(_LIMIT_S)
        for family in (socket.AF_INET, socket.AF_INET6):
            netlink.send(_request(family))
            kind = _BY_FAMILY
            while kind != _DONE:
                reply = netlink.recv(_ROOM)
                kind = _last_kind(reply)
                if kind == _ERROR:
                    raise OSError(errno.EOPNOTSUPP, "sock_diag")
                yield reply


def _request(family: int) -> bytes:
    """For all established connections, with their TCP_INFO."""
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, 1 << _ESTABLISHED)
    size = _HEADER.size + len(request)
    return _HEADER.pack(size, _BY_FAMILY, _DUMP, 1, 0) + request


def parse(reply: bytes, inodes: Collection[int]) -> list[TcpSocket]:
    """The connections with these inodes in a part of a dump. One that is cut off is left out."""
    found = (_connection(payload, inodes) for payload in _messages(reply))
    return [one for one in found if one]


def _messages(reply: bytes) -> Iterator[bytes]:
    """The payloads of the messages about sockets that came whole."""
    for kind, payload in _all_messages(reply):
        if kind == _BY_FAMILY:
            yield payload


def _all_messages(reply: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(reply):
        length, kind, *_ = _HEADER.unpack_from(reply, at)
        if length < _HEADER.size or at + length > len(reply):
            return
        yield kind, reply[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def _last_kind(reply: bytes) -> int:
    """The kind of the last message; that of an end if it was cut off."""
    kinds = [kind for kind, _ in _all_messages(reply)]
    return kinds[-1] if kinds else _DONE


def _connection(payload: bytes, inodes: Collection[int]) -> TcpSocket | None:
    if len(payload) < _SOCKET_BYTES:
        return None
    _, queued, _, inode = _QUEUES.unpack_from(payload, _QUEUES_AT)
    if inode not in inodes:
        return None
    info = _info(payload)
    if not info:
        return None
    family = payload[0]
    local, peer = (_address(family, raw) for raw in _ADDRESSES.unpack_from(payload, _ADDRESSES_AT))
    return TcpSocket(payload[_ID], local, peer, queued, info[TIMEOUTS_AT], **counts(info))


def _info(payload: bytes) -> bytes:
    """The struct tcp_info among the attributes; empty without one."""
    at = _SOCKET_BYTES
    while at + 4 <= len(payload):
        length, kind = struct.unpack_from("=HH", payload, at)
        if length < 4:
            break
        if kind == _INFO:
            return payload[at + 4 : at + length]
        at += (length + 3) & ~3
    return b""


def counts(info: bytes) -> Mapping[str, int]:
    """The counts in a struct tcp_info, without those that the kernel lacks."""
    found: dict[str, int] = {}
    if len(info) >= RESENT_AT + _COUNT.size:
        (found["resent"],) = _COUNT.unpack_from(info, RESENT_AT)
    if len(info) >= _BYTES_AT + _BYTES.size:
        found["acked"], _, found["sent"], found["heard"] = _BYTES.unpack_from(info, _BYTES_AT)
    if len(info) >= DATA_SENT_AT + _COUNT.size:
        (found["data_sent"],) = _COUNT.unpack_from(info, DATA_SENT_AT)
    if len(info) >= _DOUBLED_AT + _COUNT.size:
        (found["doubled"],) = _COUNT.unpack_from(info, _DOUBLED_AT)
    waited_s = waited_for_network_s(info)
    if waited_s is not None:
        found["waited_us"] = round(1e6 * waited_s)
    return found


@functools.lru_cache(4096)
def _address(family: int, address: bytes) -> str:
    if family == socket.AF_INET:
        return str(ipaddress.IPv4Address(address[:4]))
    if address.startswith(_MAPPED):
        return str(ipaddress.IPv4Address(address[12:]))
    return str(ipaddress.IPv6Address(address))


def _network(pid: int) -> str:
    """What tells the network namespace of a process from others; empty if it may not be read."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")  # noqa: PTH115 - many of these, often
    except OSError:
        return ""


def _inodes(pid: int) -> frozenset[int]:
    """The sockets of a process; none if they may not be read."""
    found = set()
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as files:
        for file in files:
            with contextlib.suppress(OSError, ValueError):  # closed meanwhile, or no socket
                name = os.readlink(file.path)  # noqa: PTH115 - many of these, often
                found.add(int(name.removeprefix("socket:[").removesuffix("]")))
    return frozenset(found)


def _socket_in(network: str, pid: int) -> socket.socket:
    """A socket of netlink in the network namespace of a process. OSError without permission."""
    if network == _network(os.getpid()):
        return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)
    made: list[socket.socket] = []
    thread = Thread(target=_make_in, args=(Path(f"/proc/{pid}/ns/net"), made), daemon=True)
    thread.start()  # the namespace of this thread stays
    thread.join(_LIMIT_S)
    if not made:
        raise OSError(errno.EPERM, f"network namespace of process {pid}")
    return made[0]


def _make_in(network: Path, made: list[socket.socket]) -> None:
    with contextlib.suppress(OSError), network.open("rb") as opened:
        if ctypes.CDLL(None).setns(opened.fileno(), _NEW_NETWORK) == 0:
            made.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG))
